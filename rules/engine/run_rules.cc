#include "rules/engine/run_rules.h"

#include <algorithm>
#include <numeric>

namespace plumbline::rules {

RunRules::RunRules(const std::vector<ActiveRule>* active, uint64_t most_bytes)
    : active_(active), most_bytes_(most_bytes) {
  const size_t words = (active_->size() + kBits - 1) / kBits;
  at_step_end_.resize(words);
  sees_.resize(words);
  judges_unseen_.resize(words);
  for (const ActiveRule& rule : *active_) {
    const size_t word = rules_.size() / kBits;
    const uint64_t bit = uint64_t{1} << (rules_.size() % kBits);
    rules_.push_back(rule.entry->make(rule.options));
    at_step_end_[word] |= bit;
    if (rules_.back()->judges_unseen_steps()) judges_unseen_[word] |= bit;
  }
  FindJudging();
}

void RunRules::FindJudging() {
  judging_.resize(rules_.size());
  for (size_t i = 0; i < rules_.size(); ++i)
    judging_[i] = set_aside_.contains(Id(i)) ? nullptr : rules_[i].get();
}

const std::vector<size_t>& RunRules::FindReaders(const SiteStep& step) {
  const v1::Site& site = step.site;
  constexpr size_t kMost = 1 << 16;  // sites; beyond it they are asked again
  std::string joined;
  if (!site.layer().empty()) joined = site.layer() + '\n' + site.op();
  const std::string& key = joined.empty() ? site.op() : joined;
  const auto known = readers_.find(key);
  if (known != readers_.end()) return Numbered(step, known->second);
  if (readers_.size() >= kMost) {
    readers_.clear();
    numbered_.clear();
  }
  std::vector<size_t>& readers = readers_[key];
  for (size_t i = 0; i < rules_.size(); ++i) {
    if (rules_[i]->ReadsScalar(site)) readers.push_back(i);
  }
  return Numbered(step, readers);
}

const std::vector<size_t>& RunRules::Numbered(const SiteStep& step,
                                              const std::vector<size_t>& readers) {
  if (step.number == 0) return readers;
  if (step.number >= numbered_.size()) numbered_.resize(size_t{step.number} + 1);
  numbered_[step.number] = &readers;
  return readers;
}

void RunRules::Show(const SiteStep& step) {
  if (most_bytes_ == 0) return;
  // What a rule keeps of an item may be a name, a node of a map and some sums, however small it is.
  constexpr uint64_t kItem = 256;
  for (const Item& item : step.items) shown_ += kItem + item.evidence->ByteSizeLong();
}

// To weigh costs as much as there is: so it waits until half as much was shown, and stays a small
// share of the work.
void RunRules::WeighIfDue(const OnSetAside& on_set_aside) {
  if (most_bytes_ == 0 || shown_ < std::max(most_bytes_ / 8, bytes_ / 2)) return;
  MakeRoom(most_bytes_, on_set_aside);
}

void RunRules::MakeRoom(uint64_t bytes, const OnSetAside& on_set_aside) {
  std::vector<uint64_t> each(rules_.size(), 0);
  for (size_t i = 0; i < rules_.size(); ++i) {
    if (At(i) == nullptr) continue;
    Archive archive;
    rules_[i]->Persist(archive);
    each[i] = archive.Take().size();
  }
  shown_ = 0;
  bytes_ = std::accumulate(each.begin(), each.end(), uint64_t{0});
  while (bytes_ > bytes) {
    const auto largest = std::max_element(each.begin(), each.end());  // of equals the first
    const auto i = static_cast<size_t>(largest - each.begin());
    set_aside_.insert(Id(i));
    rules_[i] = (*active_)[i].entry->make((*active_)[i].options);  // gives back what it held
    FindJudging();
    bytes_ -= *largest;
    on_set_aside(i, *largest);
    *largest = 0;
  }
}

void RunRules::PersistCounts(Archive& archive) {
  archive(shown_, bytes_, set_aside_);
  FindJudging();
}

void RunRules::PersistRules(Archive& archive) {
  for (size_t i = 0; i < rules_.size(); ++i)
    archive.Section(Id(i), [&] { rules_[i]->Persist(archive); });
}

}  // namespace plumbline::rules
