// Work that several rules of one step need, done once: the first that asks does it.
#pragma once

#include <any>
#include <map>
#include <memory>
#include <typeindex>

namespace plumbline::rules {

// One value of each type. Who shares something has a type of its own for it, which nobody else can
// put there by mistake. Belongs to one step: a copy of a step begins with nothing, so that no step
// finds another one's results. Not thread-safe.
class StepCache {
 public:
  StepCache() = default;
  StepCache(const StepCache& /*other*/) {}
  StepCache& operator=(const StepCache& /*other*/) {
    values_.clear();
    return *this;
  }
  ~StepCache() = default;

  // The step's Value; where there is none yet, what `make` gives (a std::shared_ptr<Value>), which
  // may ask for other types meanwhile.
  template <typename Value, typename Make>
  std::shared_ptr<Value> Get(Make&& make) const {
    std::any& slot = values_[typeid(std::shared_ptr<Value>)];
    if (!slot.has_value()) slot = std::shared_ptr<Value>(make());
    return std::any_cast<const std::shared_ptr<Value>&>(slot);
  }

 private:
  // Filled while the step itself is constant.
  mutable std::map<std::type_index, std::any> values_;
};

}  // namespace plumbline::rules
