// Work that several rules of one step need, done once: the first that asks does it.
#pragma once

#include <memory>
#include <type_traits>
#include <typeindex>
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

  // The step's Value; where there is none yet, what `make` gives (a std::shared_ptr<Value>), which
  // may ask for other types meanwhile.
  template <typename Value, typename Make>
  std::shared_ptr<Value> Get(Make&& make) const {
    const std::type_index type = typeid(std::shared_ptr<Value>);  // a constant one is another
    for (const auto& [known, value] : values_) {
      if (known == type) return std::static_pointer_cast<Value>(value);
    }
    std::shared_ptr<Value> made = make();
    values_.emplace_back(type, std::const_pointer_cast<std::remove_const_t<Value>>(made));
    return made;
  }

 private:
  // A handful at most. Filled while the step itself is constant.
  mutable std::vector<std::pair<std::type_index, std::shared_ptr<void>>> values_;
};

}  // namespace plumbline::rules
