#include "rules/engine/engine_runs.h"

namespace plumbline::rules {
namespace {

uint64_t LossesOf(const EngineRun& run) {
  uint64_t total = 0;
  for (const auto& [key, loss] : run.state.summary().losses) total += loss.count;
  return total;
}

}  // namespace

EngineRun* EngineRuns::Find(const std::string& name) const {
  const MutexLock lock(mutex_);
  const auto found = runs_.find(name);
  return found == runs_.end() ? nullptr : found->second.get();
}

EngineRun& EngineRuns::Put(std::unique_ptr<EngineRun> run) {
  const MutexLock lock(mutex_);
  return *(runs_[run->name()] = std::move(run));
}

bool EngineRuns::Drop(const std::string& name) {
  std::unique_ptr<EngineRun> run;
  {
    const MutexLock lock(mutex_);
    const auto found = runs_.find(name);
    if (found == runs_.end()) return false;
    run = std::move(found->second);
    runs_.erase(found);
  }
  dropped_losses_ += LossesOf(*run);
  open_bytes_ -= run->weight;
  rule_bytes_ -= run->rules_weight;
  return true;
}

void EngineRuns::Clear() {
  {
    const MutexLock lock(mutex_);
    runs_.clear();
  }
  open_bytes_ = rule_bytes_ = dropped_losses_ = 0;
}

void EngineRuns::Weigh(EngineRun* run) {
  const uint64_t bytes = run->state.open_bytes();
  open_bytes_ += bytes - run->weight.exchange(bytes);
  const uint64_t remembered = run->rules.bytes();
  rule_bytes_ += remembered - run->rules_weight.exchange(remembered);
  run->set_aside = run->rules.set_aside();
  run->series_left_out = run->rules.series().left_out();
  run->over = run->state.over();
}

std::vector<std::string> EngineRuns::Names() const {
  std::vector<std::string> names;
  const MutexLock lock(mutex_);
  for (const auto& [name, run] : runs_) names.push_back(name);
  return names;
}

std::vector<std::string> EngineRuns::Over() const {
  std::vector<std::string> names;
  const MutexLock lock(mutex_);
  for (const auto& [name, run] : runs_) {
    if (run->over) names.push_back(name);
  }
  return names;
}

std::string EngineRuns::Largest() const {
  std::string largest;
  uint64_t bytes = 0;
  const MutexLock lock(mutex_);
  for (const auto& [name, run] : runs_) {
    if (run->weight <= bytes) continue;
    bytes = run->weight;
    largest = name;
  }
  return largest;
}

uint64_t EngineRuns::series_left_out(const std::string& name) const {
  const MutexLock lock(mutex_);
  const auto found = runs_.find(name);
  return found == runs_.end() ? 0 : found->second->series_left_out.load();
}

uint64_t EngineRuns::losses() const { return dropped_losses_ + Sum(LossesOf); }

}  // namespace plumbline::rules
