// Shares work between the rules of one step: the first rule that needs a result computes it.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace plumbline::analysis {

// One value of each type. Each user needs a separate type, so that values cannot be confused.
// Belongs to one step: a copy of a step begins empty, so that no step finds results of another. Not
// thread-safe.
class StepCache {
 public:
  StepCache() = default;
  StepCache(const StepCache& /*other*/) {}
  StepCache& operator=(const StepCache& /*other*/) {
    Clear();
    return *this;
  }
  ~StepCache() = default;

  // Clears the values, so that a step can be judged again; keeps the memory.
  void Clear() { values_.clear(); }

  // Returns the step's Value, or nullptr if there is none yet. Does not change its reference count.
  template <typename Value>
  const Value* Peek() const {
    for (const auto& [known, value] : values_) {
      if (known == TypeOf<Value>()) return static_cast<const Value*>(value.get());
    }
    return nullptr;
  }

  // Returns the step's Value. If there is none yet, calls `make`, which returns a
  // std::shared_ptr<Value> and may request other types.
  template <typename Value, typename Make>
  std::shared_ptr<Value> Get(Make&& make) const {
    const void* const type = TypeOf<Value>();  // a const type is a different type
    for (const auto& [known, value] : values_) {
      if (known == type) return std::static_pointer_cast<Value>(value);
    }
    std::shared_ptr<Value> made = make();
    values_.emplace_back(type, std::const_pointer_cast<std::remove_const_t<Value>>(made));
    return made;
  }

 private:
  // Does not use typeid: libstdc++ compares names, and clang gives equal names to types in the
  // unnamed namespaces of two files.
  template <typename Value>
  static const void* TypeOf() {
    static char type = 0;
    return &type;
  }

  // A few entries. Filled while the step itself is const.
  mutable std::vector<std::pair<const void*, std::shared_ptr<void>>> values_;
};

}  // namespace plumbline::analysis
