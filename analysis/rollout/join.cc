#include "analysis/rollout/join.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "analysis/frame/frame.h"
#include "analysis/rollout/content.h"

namespace plumbline::analysis {
namespace {

constexpr uint64_t kWindowSteps = 64;
constexpr size_t kMostBytes = 64u << 20;  // limit for waiting halves
// Number of remembered sequences; at most twice this number.
constexpr size_t kRemembered = 1u << 17;

using Message = std::shared_ptr<const v1::LogprobsSequence>;
using SiteKey = std::pair<std::string, std::string>;
using StepKey = std::pair<uint32_t, int64_t>;  // (attempt, step)

// Returns true if `later` is more than the window after `earlier`.
bool Passed(int64_t later, int64_t earlier) {
  return later > earlier &&
         static_cast<uint64_t>(later) - static_cast<uint64_t>(earlier) > kWindowSteps;
}

// Stores hashes of the last sequences, at most twice kRemembered.
class Memory {
 public:
  // Adds a hash. Returns true if it was already present.
  bool Add(uint64_t hash) {
    if (young_.contains(hash) || old_.contains(hash)) return true;
    if (young_.size() >= kRemembered) {
      old_ = std::move(young_);
      young_.clear();
    }
    young_.insert(hash);
    return false;
  }
  void Persist(Archive& a) { a(young_, old_); }

 private:
  std::unordered_set<uint64_t> young_, old_;
};

}  // namespace

// The halves of one site. Steps of a later attempt come after all steps of earlier ones.
class RolloutJoin::State {
 public:
  std::vector<RolloutBatch> Take(const SiteStep& step) {
    Site& site = sites_[{step.site.layer(), step.site.op()}];
    const StepKey key{step.attempt, step.step};
    bool train = false, rollout = false;
    for (const Item& item : step.items) {
      if (!item.evidence->has_logprobs()) continue;
      bool item_train = false, item_rollout = false;
      for (const v1::LogprobsSequence& s : item.evidence->logprobs().sequences())
        Sort(s, *item.source, key, site, &item_train, &item_rollout);
      Keys& keys = keys_[{step.site.layer(), step.site.op()}];
      if (item_train) keys.Note(item.evidence->redacted_key(), &keys.train);
      if (item_rollout) keys.Note(item.evidence->redacted_key(), &keys.rollout);
      train |= item_train;
      rollout |= item_rollout;
    }
    if (train) site.train_closed = std::max(site.train_closed, step.step);
    if (rollout) site.rollout_closed = std::max(site.rollout_closed, step.step);
    std::vector<RolloutBatch> done = Release(site, false);
    Keep(site);
    GiveUpRollouts(site);
    while (bytes_ > kMostBytes && GiveUpOldest(site, &done)) {
    }
    for (RolloutBatch& batch : done) Name(step.site.layer(), step.site.op(), &batch);
    return done;
  }

  std::vector<RolloutBatch> Finish() {
    std::vector<RolloutBatch> rest;
    for (auto& [key, site] : sites_) {
      // If a process returns, it continues with its later steps.
      const int64_t closed = std::exchange(site.rollout_closed, kForever);
      for (RolloutBatch& batch : Release(site, true)) {
        Name(key.first, key.second, &batch);
        rest.push_back(std::move(batch));
      }
      site.rollout_closed = closed;
      while (!site.rollout_steps.empty()) GiveUpRollout(site);
    }
    return rest;
  }

  RolloutJoinCounts counts(const SiteKey& key) const {
    const auto found = sites_.find(key);
    if (found == sites_.end()) return {};
    RolloutJoinCounts counts = found->second.counts;
    if (const auto keys = keys_.find(key); keys != keys_.end())
      counts.keys_differ = keys->second.Differ();
    for (const auto& [step, pending] : found->second.pending) {
      for (const Half& half : pending.halves) counts.waiting_train += half.rollout == nullptr;
    }
    for (const auto& [id, waiting] : found->second.rollouts)
      counts.waiting_rollout += waiting.size();
    return counts;
  }

  std::vector<SiteKey> sites() const {
    std::vector<SiteKey> keys;
    for (const auto& [key, site] : sites_) keys.push_back(key);
    return keys;
  }

  void Persist(Archive& a) {
    a.Version(3, 3);
    a(sites_, bytes_, keys_);
  }

 private:
  // The keys with which the ids of each side's halves were redacted; 0 if they are raw.
  struct Keys {
    static constexpr size_t kMost = 16;
    std::set<uint64_t> train, rollout;
    static void Note(uint64_t key, std::set<uint64_t>* keys) {
      if (keys->size() < kMost) keys->insert(key);
    }
    bool Differ() const { return !train.empty() && !rollout.empty() && train != rollout; }
    void Persist(Archive& a) { a(train, rollout); }
  };

  static constexpr int64_t kNever = std::numeric_limits<int64_t>::min();
  static constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

  // A half of the trainer. `rollout` is null while it waits. For a whole sequence, both point to
  // it.
  struct Half {
    const v1::LogprobsSequence* train = nullptr;
    const v1::LogprobsSequence* rollout = nullptr;
    Message train_owner, rollout_owner;

    // Both messages are owned between steps.
    void Persist(Archive& a) {
      bool whole = rollout != nullptr && rollout == train;
      a(train_owner, rollout_owner, whole);
      train = train_owner.get();
      rollout = whole ? train : rollout_owner.get();
    }
  };
  struct Pending {
    std::vector<Half> halves;
    std::set<uint32_t> ranks;
    void Persist(Archive& a) { a(halves, ranks); }
  };
  struct Site {
    std::map<StepKey, Pending> pending;
    std::map<std::string, std::map<int64_t, Message>> rollouts;  // id -> step -> half
    std::set<std::pair<int64_t, std::string>> rollout_steps;     // the same halves, as (step, id)
    int64_t train_closed = kNever;
    int64_t rollout_closed = kNever;
    Memory memory;
    Memory draws;  // hashes of sequences without their ids
    RolloutJoinCounts counts;

    void Persist(Archive& a) {
      a(pending, rollouts, rollout_steps, train_closed, rollout_closed, memory, draws, counts);
    }
  };

  void Sort(const v1::LogprobsSequence& s, const v1::Source& source, const StepKey& key, Site& site,
            bool* train, bool* rollout) {
    const bool has_train = s.train().has_logprobs();
    const bool has_rollout = s.rollout().has_logprobs();
    if (!has_train && !has_rollout) {
      ++site.counts.empty;
      return;
    }
    if (has_train) {
      Pending& pending = site.pending[key];
      pending.ranks.insert(source.rank());
      pending.halves.push_back({&s, has_rollout ? &s : nullptr, nullptr, nullptr});
      *train = true;
      return;
    }
    *rollout = true;
    auto copy = std::make_shared<v1::LogprobsSequence>(s);
    bytes_ += copy->ByteSizeLong();
    // If an id occurs twice in a step, the later one replaces the earlier one.
    Message& slot = site.rollouts[s.id()][key.second];
    if (slot != nullptr) Drop(slot, site.counts.given_up_rollout);
    slot = std::move(copy);
    site.rollout_steps.emplace(key.second, s.id());
  }

  void Drop(const Message& message, uint64_t& counter) {
    bytes_ -= message->ByteSizeLong();
    ++counter;
  }

  // Takes the rollout's half of the same step if both can belong to one sequence. Otherwise, if the
  // rollout's steps have advanced far enough, takes the half with the same tokens from the lowest
  // step.
  bool Meet(Site& site, int64_t step, Half& half) {
    if (half.rollout != nullptr) return true;
    const auto found = site.rollouts.find(half.train->id());
    if (found == site.rollouts.end()) return false;
    auto at = found->second.find(step);
    if (at != found->second.end() && !Akin(*half.train, *at->second)) at = found->second.end();
    if (at == found->second.end() && site.rollout_closed >= step) {
      at = std::find_if(found->second.begin(), found->second.end(), [&](const auto& waiting) {
        return !Passed(waiting.first, step) && !Passed(step, waiting.first) &&
               SameTokens(*half.train, *waiting.second);
      });
    }
    if (at == found->second.end()) return false;
    half.rollout_owner = at->second;
    half.rollout = half.rollout_owner.get();
    bytes_ -= half.rollout->ByteSizeLong();
    site.rollout_steps.erase({at->first, half.train->id()});
    found->second.erase(at);
    if (found->second.empty()) site.rollouts.erase(found);
    return true;
  }

  // Releases the trainer's steps, oldest first, up to the first one that still waits.
  std::vector<RolloutBatch> Release(Site& site, bool all) {
    std::vector<RolloutBatch> done;
    while (!site.pending.empty()) {
      const auto first = site.pending.begin();
      const int64_t step = first->first.second;
      bool met = true;
      for (Half& half : first->second.halves) met &= Meet(site, step, half);
      const bool passed = Passed(site.rollout_closed, step);
      if (!met && !passed && !all) break;
      done.push_back(HandOut(site, first->first, first->second));
      site.pending.erase(first);
    }
    return done;
  }

  RolloutBatch HandOut(Site& site, const StepKey& key, Pending& pending) {
    RolloutBatch batch;
    batch.attempt = key.first;
    batch.step = key.second;
    batch.ranks.assign(pending.ranks.begin(), pending.ranks.end());
    std::stable_sort(pending.halves.begin(), pending.halves.end(),
                     [](const Half& a, const Half& b) { return a.train->id() < b.train->id(); });
    for (Half& half : pending.halves) {
      if (half.train_owner != nullptr) bytes_ -= half.train_owner->ByteSizeLong();
      if (half.rollout == nullptr) {
        ++site.counts.given_up_train;
        ++batch.unmatched;
        continue;
      }
      ++site.counts.sequences;
      const bool later = site.memory.Add(ContentOf(*half.rollout, key.second));
      const std::optional<uint64_t> draw = later ? std::nullopt : DrawOf(*half.rollout);
      const bool copy = draw.has_value() && site.draws.Add(*draw);
      batch.entries.push_back(
          {half.train, half.rollout, later, copy, {half.train_owner, half.rollout_owner}});
    }
    return batch;
  }

  // Copies the waiting halves, because they must outlive the step's evidence.
  void Keep(Site& site) {
    for (auto& [step, pending] : site.pending) {
      for (Half& half : pending.halves) {
        if (half.train_owner != nullptr) continue;
        half.train_owner = std::make_shared<v1::LogprobsSequence>(*half.train);
        if (half.rollout == half.train) half.rollout = half.train_owner.get();
        half.train = half.train_owner.get();
        bytes_ += half.train->ByteSizeLong();
      }
    }
  }

  void GiveUpRollout(Site& site) {
    const auto [step, id] = *site.rollout_steps.begin();
    const auto found = site.rollouts.find(id);
    Drop(found->second.at(step), site.counts.given_up_rollout);
    found->second.erase(step);
    if (found->second.empty()) site.rollouts.erase(found);
    site.rollout_steps.erase(site.rollout_steps.begin());
  }

  // Drops the rollout's halves that no waiting or future step of the trainer can match.
  void GiveUpRollouts(Site& site) {
    if (site.train_closed == kNever) return;
    int64_t oldest = site.train_closed;
    for (const auto& [step, pending] : site.pending) oldest = std::min(oldest, step.second);
    while (!site.rollout_steps.empty() && Passed(oldest, site.rollout_steps.begin()->first))
      GiveUpRollout(site);
  }

  // If too many bytes wait, releases the oldest step with the halves that have matched.
  bool GiveUpOldest(Site& site, std::vector<RolloutBatch>* done) {
    if (!site.pending.empty()) {
      const auto first = site.pending.begin();
      for (Half& half : first->second.halves) Meet(site, first->first.second, half);
      done->push_back(HandOut(site, first->first, first->second));
      site.pending.erase(first);
      return true;
    }
    if (site.rollout_steps.empty()) return false;
    GiveUpRollout(site);
    return true;
  }

  static void Name(const std::string& layer, const std::string& op, RolloutBatch* batch) {
    batch->layer = layer;
    batch->op = op;
  }

  std::map<SiteKey, Site> sites_;
  std::map<SiteKey, Keys> keys_;
  size_t bytes_ = 0;
};

namespace {

// Content of SiteStep::cache.
struct Shared {
  std::shared_ptr<RolloutJoin::State> state;
  RolloutJoin::Batches batches;
};

}  // namespace

RolloutJoin::RolloutJoin() : state_(std::make_shared<State>()) {}

RolloutJoin::Batches RolloutJoin::Take(const SiteStep& step) {
  const auto shared = step.cache.Get<const Shared>([&] {
    auto batches = std::make_shared<std::vector<RolloutBatch>>(state_->Take(step));
    return std::make_shared<Shared>(Shared{state_, std::move(batches)});
  });
  state_ = shared->state;
  return shared->batches;
}

std::vector<RolloutBatch> RolloutJoin::Finish() { return state_->Finish(); }

void RolloutJoin::Persist(Archive& archive) { archive(state_); }

std::vector<SiteKey> RolloutJoin::sites() const { return state_->sites(); }

RolloutJoinCounts RolloutJoin::counts(const std::string& layer, const std::string& op) const {
  return state_->counts({layer, op});
}

std::string RolloutBatch::ForEach(const std::function<void(const RolloutSequence&)>& visit) const {
  std::string first_problem;
  RolloutSequence sequence;
  for (const Entry& entry : entries) {
    const absl::Status status = DecodeRollout(*entry.train, *entry.rollout, &sequence);
    sequence.step = step;
    sequence.later_epoch = entry.later_epoch;
    sequence.copy = entry.copy;
    if (status.ok()) visit(sequence);
    if (!status.ok() && first_problem.empty()) first_problem = std::string(status.message());
  }
  return first_problem;
}

}  // namespace plumbline::analysis
