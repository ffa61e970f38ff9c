#include "rules/engine/run_rules.h"

#include <algorithm>
#include <utility>

namespace plumbline::rules {

RunRules::RunRules(const std::vector<ActiveRule>* active, uint64_t most_bytes, JudgedSeries series)
    : active_(active), most_bytes_(most_bytes), series_(std::move(series)) {
  const size_t words = (active_->size() + kBits - 1) / kBits;
  at_step_end_.resize(words);
  sees_.resize(words);
  judges_unseen_.resize(words);
  for (const ActiveRule& rule : *active_) {
    const size_t word = rules_.size() / kBits;
    const uint64_t bit = uint64_t{1} << (rules_.size() % kBits);
    rules_.push_back(rule.entry->make(rule.options));
    at_step_end_[word] |= bit;
    const ScalarRule* const scalars = rules_.back()->scalars();
    if (scalars == nullptr || scalars->judges_unseen_steps()) judges_unseen_[word] |= bit;
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
  constexpr size_t kMost = 1 << 16;  // sites; beyond it the rules are queried again
  std::string joined;
  if (!site.layer().empty()) joined = site.layer() + '\n' + site.op();
  const std::string& key = joined.empty() ? site.op() : joined;
  const auto known = readers_.find(key);
  if (known != readers_.end()) return Numbered(step, *known->second);
  if (readers_.size() >= kMost) readers_.clear();
  const std::vector<size_t>& readers = *lists_.insert(QueryReader(site)).first;
  readers_[key] = &readers;
  return Numbered(step, readers);
}

std::vector<size_t> RunRules::QueryReader(const v1::Site& site) {
  std::vector<size_t> readers;
  const uint64_t before = series_.admitted();
  if (!series_.Admit(site)) return readers;
  fresh_series_ += series_.admitted() - before;
  for (size_t i = 0; i < rules_.size(); ++i) {
    if (Reads(rules_[i].get(), site)) readers.push_back(i);
  }
  return readers;
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
  // A rule may keep a name, a map node and some sums of an item, even if the item is small.
  constexpr uint64_t kItem = 256;
  for (const Item& item : step.items) shown_ += kItem + item.evidence->ByteSizeLong();
}

// The cost of weighing grows with the size of the state. So weighs only after half as many new
// bytes were shown, and stays a small share of the work.
void RunRules::WeighIfDue(const OnSetAside& on_set_aside) {
  const uint64_t fresh = shown_ + fresh_series_ * kSeriesBytes;
  if (most_bytes_ == 0 || fresh < std::max(most_bytes_ / 8, bytes_ / 2)) return;
  MakeRoom(most_bytes_, on_set_aside);
}

void RunRules::MakeRoom(uint64_t bytes, const OnSetAside& on_set_aside) {
  shown_ = fresh_series_ = 0;
  bytes_ = WeighAll();
  while (bytes_ > bytes) {
    std::vector<uint64_t> each(rules_.size(), 0);
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (At(i) == nullptr) continue;
      Archive archive{Archive::Counting()};
      rules_[i]->Persist(archive);
      each[i] = archive.written();
    }
    const auto largest = std::max_element(each.begin(), each.end());  // if equal, the first
    if (*largest == 0) return;
    const auto i = static_cast<size_t>(largest - each.begin());
    set_aside_.insert(Id(i));
    rules_[i] = (*active_)[i].entry->make((*active_)[i].options);  // frees what it held
    FindJudging();
    on_set_aside(i, *largest);
    bytes_ = WeighAll();
  }
}

// State that several rules share counts once.
uint64_t RunRules::WeighAll() {
  Archive archive{Archive::Counting()};
  for (size_t i = 0; i < rules_.size(); ++i) {
    if (At(i) != nullptr) rules_[i]->Persist(archive);
  }
  return archive.written();
}

void RunRules::PersistCounts(Archive& archive, bool with_series) {
  archive(shown_, bytes_, set_aside_);
  if (with_series) archive(series_, fresh_series_);
  FindJudging();
}

void RunRules::PersistRules(Archive& archive) {
  for (size_t i = 0; i < rules_.size(); ++i)
    archive.Section(Id(i), [&] { rules_[i]->Persist(archive); });
}

}  // namespace plumbline::rules
