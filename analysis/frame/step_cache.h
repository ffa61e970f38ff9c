// Work that several rules of one step need, done once: the first that asks does it.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace plumbline::rules {

// One value of each type. Who shares something has a type of its own for it, which nobody else can
// put there by mistake. Belongs to one step: a copy of a step begins with nothing, so that no step
// finds another one's results. Not thread-safe.
class StepCache {
 public:
  StepCache() = default;
  StepCache(const StepCache& /*other*/) {}
  StepCache& operator=(const StepCache& /*other*/) {
    Clear();
    return *this;
  }
  ~StepCache() = default;

  // What a step that is judged anew begins with; its memory is used again.
  void Clear() { values_.clear(); }

  // The step's Value, where there is one yet; nullptr. It costs no count of who holds it.
  template <typename Value>
  const Value* Peek() const {
    for (const auto& [known, value] : values_) {
      if (known == TypeOf<Value>()) return static_cast<const Value*>(value.get());
    }
    return nullptr;
  }

  // The step's Value; where there is none yet, what `make` gives (a std::shared_ptr<Value>), which
  // may ask for other types meanwhile.
  template <typename Value, typename Make>
  std::shared_ptr<Value> Get(Make&& make) const {
    const void* const type = TypeOf<Value>();  // a constant one is another
    for (const auto& [known, value] : values_) {
      if (known == type) return std::static_pointer_cast<Value>(value);
    }
    std::shared_ptr<Value> made = make();
    values_.emplace_back(type, std::const_pointer_cast<std::remove_const_t<Value>>(made));
    return made;
  }

 private:
  // No typeid: libstdc++ compares names, and clang gives types of one name in the unnamed
  // namespaces of two files the same one.
  template <typename Value>
  static const void* TypeOf() {
    static char type = 0;
    return &type;
  }

  // A handful at most. Filled while the step itself is constant.
  mutable std::vector<std::pair<const void*, std::shared_ptr<void>>> values_;
};

}  // namespace plumbline::rules
