#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/frame/frame.h"
#include "analysis/policy/policy.h"
#include "rules/bases/collapse_words.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/rl-collapse

A policy stops learning, or moves far from its reference: rewards that do not differ within a group, an entropy near 0, a KL that grows by factors of e, most tokens clipped.

**Why.** A policy gradient comes from differences of rewards within a group. Without them it is exactly 0, and each step costs its full time. With an entropy near 0 the policy does not explore. If the KL to the reference grows by factors of e, the policy produces text that gets a high reward but is not useful. The loss shows none of it: a policy's loss is near 0 by construction.

**Bad.** `entropy was 1.2 in the first ten points and is 0.0011 from step 60 on, while no group has any spread of rewards`

**Good.** An entropy that falls to a third; a KL that rises from 0 to 0.3 and then stays there; half of the groups without spread.

**How to fix it.**
- No spread: harder or easier prompts (verl `algorithm.filter_groups.enable=True`, DAPO's dynamic sampling), more samples per prompt, a reward that is not constant.
- Entropy: a higher upper clip (`epsilon_high=0.28`), an entropy bonus, a lower rate; sampling at temperature 1.
- Reference: a larger KL coefficient (TRL `beta`, verl `actor.kl_loss_coef`), a lower rate, a check of what gets a high reward.
- Truncated from the first step on: longer answers (TRL `max_completion_length`, verl `data.max_response_length`, slime `--rollout-max-response-len`), and the end token.
- Exactly 0: the reference is the policy itself: load it anew, or do not disable the adapter on both sides. Inverted pairs: check the sign of the loss, and the order of chosen and rejected answers.

**What it checks.** Series of reinforcement learning and preference training, known by their names (docs/scalars.md), if the run has a reward, a clip share or a step KL.
- *No spread*: the share of groups without spread (`frac_reward_zero_std`) is 0.99 or more, or the standard deviation of rewards within groups (`reward_std`) is exactly 0, in ten points in a row, or in more if chance gives ten by the share of such points before. Or the share of groups with spread (`pct_mixed`, `frac_mixed`, `effective_batch_size`, `real_batch_size_ratio`) is 0. Counts by reward (slime's `zero_std/count_1.0`) state it if these groups alone give the mean reward, and there were never more. A note if the newest ten rewards are the highest, up to single answers: the task is solved.
- *Entropy*: the median of five points is below a tenth of the median of the first ten, and each of them is. A note if the reward still rises beyond its noise, or the task is solved.
- *Reference*: the KL to the reference grows by two e-folds within the newest quarter of the points, or by 3.5 within the newest half, at three points in a row, to above 0.5 nats per token (100 where it begins with 5 or more, as a sum over sequences does; and in preference training, whose KL is such a sum).
- *Clipped*: more than half of the tokens are clipped, in ten points in a row.
- *Truncated*: half of the answers or more are truncated (`completions/clipped_ratio`, `response_length/clip_ratio`), in ten points in a row, after at least five points under a fifth. A note if the reward still rises. Or 90 % or more in each of the first 20 points, while no reward exceeds 0.05, or all are equal: a note that names the setting of the longest answer.
- *Pairs* (DPO and its kin): the accuracy of pairs (`rewards/accuracies`) is below 0.5, and the margin below 0, in more points in a row than a coin gives once in 1,000 runs (15 of 20 points, 16 of 60, 18 of 200), and the margin began at 0 or near it.
- *Age of samples* (`staleness`, `off_policy_steps`, `version_lag`): its medians rise over the four quarters of 200 points or more, twice by a quarter, to 16 or more.
- *A constant reward*: one value in 50 points in a row. A note if the task is solved. Of one function of several (`rewards/NAME/mean`, `reward/NAME`): a note, if it has been constant from the first point on.
- *The reward itself*: its level, a median of ten points, is below its best level by half of what it had reached and by four times its noise, in ten levels in a row (an eighth of the points, if these are more; twice as long as an earlier fall that came back). An error at 85 %. A note if it came back within a quarter. Of the reward of episodes: a warning at 85 %. The score of an evaluation (`eval/aime`) is judged as well. If another condition holds, it states the fall.
- *Negative*: the median of five points of the KL to the reference is below -1 and below three times its noise, in ten points in a row. A mean of log ratios over samples of the policy is not.
- *A constant*: the KL to the reference is exactly 0 in 50 points or more; or a preference loss is ln 2 (0.6931 as it is printed), or 1/2 (KTO), while the margin is exactly 0, in ten.

Each is a warning, and an error if the mean reward fell as well: its level is lower than its best by a third of what it had reached and by three times its noise.

**Strength.** `statistical`, `measured`: of 2,040 simulated healthy runs of 30 to 2,000 points (twelve kinds, 18 forms of logs, restarts) none has a warning: at most 0.15 % of runs at 95 % confidence. Inverted pairs have counts of their own (docs/measurements/rl_logs.md). The constants are `proved`: sampled numbers of two different models are not equal in each of 50 steps. NeMo-RL, OpenRLHF and AReaL also log a KL of 0 if they have no reference: a note, `heuristic`.

**Inconclusive when** a series has too few points: 20 of entropy or KL, 14 of accuracies of pairs, 10 of the others; or an entropy is negative (of a density).

**What it cannot see.** A collapse before the tenth point; pairs that are swapped in the data, whose margins rise; margins that never rise, and accuracies near 0.5, because many healthy preference trainings have them (a fifth and a third of simulated ones); a reward that is gained by a trick; entropies that a log rounds to 0. **Known alarms:** classical control, whose best policy has no entropy, while the reward stands below an earlier best.

**Cost.** 10 KB a series.

**Sources.** Yu et al., "DAPO", 2025; Cui et al., "The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models", 2025; Rafailov et al., "Direct Preference Optimization", 2023 (the loss at a margin of 0 is ln 2).
)page";

constexpr RuleInfo kInfo = {"health/rl-collapse",
                            "a policy collapses or leaves its reference",
                            v1::LEVEL_ERROR,
                            "0.2.0",
                            kPage,
                            {}};

// 0 of 2,040 healthy runs alarmed: below 3 / 2040 at 95 %.
constexpr double kCollapseAlarms = 1.5e-3;

class RlCollapse : public ScalarRule {
 public:
  explicit RlCollapse(const Options& options) : roles_(options.roles()) {}

  bool ReadsScalar(const v1::Site& site) const override {
    return KindOf(site.op()) != PolicyKind::kNone;
  }

  void Judge(const SiteStep& step, VerdictSink& /*out*/) override {
    const PolicyKind kind = known_.Of(step, [&] { return KindOf(step.site.op()); });
    if (kind == PolicyKind::kNone) return;
    const auto item = std::find_if(step.items.begin(), step.items.end(),
                                   [](const Item& any) { return any.evidence->has_scalar(); });
    if (item == step.items.end()) return;
    is_policy_ = is_policy_ || ShowsPolicy(kind);
    const double value = item->evidence->scalar().value();
    const std::string& op = step.site.op();
    if (const auto reward = ZeroCounts::RewardIn(op)) counts_.Count(*reward, value);
    if (op.ends_with("raw_reward")) counts_.Reward(value);
    Key key{step.role, step.site.layer(), op};
    if (kind == PolicyKind::kPreferenceLoss && IsOtherLoss(key, value)) return;
    const auto [place, fresh] = series_.try_emplace(std::move(key));
    Place& series = place->second;
    if (fresh) series.step_first = step.step;
    series.rank = item->source->rank();
    TakePoint(kind, step.step, value, &series);
  }

  bool judges_unseen_steps() const override { return false; }
  void JudgeStep(const StepEnd& step, VerdictSink& out) override {
    if (const std::optional<double> share = counts_.Close()) {
      const auto [place, fresh] =
          series_.try_emplace({step.role, "", std::string(ZeroCounts::kName)});
      if (fresh) place->second.step_first = step.step;
      TakePoint(PolicyKind::kSpreadlessShare, step.step, *share, &place->second);
    }
    if (!is_policy_ || !std::exchange(news_, false)) return;
    for (const auto& [words, place] : Leaders()) {
      const v1::Level level = LevelOf(*place, false);
      const auto [stated, fresh] = stated_.try_emplace(words->cause, level);
      if (!fresh && stated->second >= level) continue;
      stated->second = level;
      out.Add(Found(*words, *place, level));
    }
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    if (!is_policy_) return;
    for (const auto& [words, place] : Leaders())
      out.Add(Found(*words, *place, LevelOf(*place, true)));
    for (const auto& any : series_) {
      const auto& [key, place] = any;
      const PolicyKind kind = KindOf(std::get<2>(key));
      if (place.course.found() && Counts(kind, any)) continue;
      // Only the fall of the mean reward is judged, and that of an evaluation's.
      if (kind == PolicyKind::kReward && (!FallCounts(any) || place.course.collapsed())) continue;
      std::optional<v1::Verdict> rest = RestOfPolicy(kind, place.course);
      if (!rest) continue;
      SetPlace(*rest, std::get<1>(key), std::get<2>(key), place.step_first, place.step_last,
               std::vector<uint32_t>{place.rank});
      out.Add(*std::move(rest));
    }
  }

  const void* judges_apart() const override { return this; }
  // Takes rows in which every column is a loss that this rule ignores. Most logs have only such
  // rows.
  size_t TakeRows(const ScalarRows& rows, size_t first, VerdictSink& /*out*/) override {
    const auto other = [&](const ScalarColumn& column) {
      const SiteStep& any = column.any();
      return other_losses_.contains({any.role, any.site.layer(), any.site.op()});
    };
    const bool all = std::all_of(rows.columns.begin(), rows.columns.end(), other);
    return all ? rows.size() - first : 0;
  }

  void Persist(Archive& archive) override {
    archive.Version(9, 9);  // 7: ages; 8: growth in a row; 9: pairs, truncated from the first
    archive(series_, other_losses_, stated_, is_policy_, news_, counts_);
    if (archive.reading()) known_ = {};
  }

 private:
  // Points after the collapse of an entropy at which the rule decides whether the reward rises.
  static constexpr uint64_t kDecided = 20;
  using Key = std::tuple<v1::Role, std::string, std::string>;  // role, layer, op
  struct Place {
    PolicySeries course;
    int64_t step_first = 0, step_last = 0;
    uint32_t rank = 0;
    double best_then = NAN;    // best reward before the condition began
    bool solved_then = false;  // the task was solved when the condition began
    void Persist(Archive& a) { a(course, step_first, step_last, rank, best_then, solved_then); }
  };
  using Map = std::map<Key, Place>;

  void TakePoint(PolicyKind kind, int64_t step, double value, Place* series) {
    series->step_last = std::max(series->step_last, step);
    if (!std::isfinite(value)) return;  // health/loss-non-finite reports it
    if (series->course.Take(kind, step, value)) {
      const Map::value_type* reward = Reward();
      if (reward != nullptr) {
        series->best_then = reward->second.course.reward().best();
        series->solved_then = reward->second.course.reward().solved();
      }
      news_ = true;
    }
    news_ = news_ || series->course.since() == kDecided;
  }

  // Judges only a loss that has always been ln 2. For other losses, keeps only the name.
  bool IsOtherLoss(const Key& key, double value) {
    if (other_losses_.contains(key)) return true;
    if (!std::isfinite(value) || PolicySeries::IsUndecided(value)) return false;
    const auto known = series_.find(key);
    if (known != series_.end() && known->second.course.found()) return false;
    if (known != series_.end()) series_.erase(known);
    other_losses_.insert(key);
    return true;
  }

  PolicyKind KindOf(const std::string& op) const {
    if (op == ZeroCounts::kName) return PolicyKind::kSpreadlessShare;
    const PolicyKind kind = PolicyMetricOf(op, roles_.Of(op)).kind;
    return kind == PolicyKind::kMismatch ? PolicyKind::kOther : kind;
  }

  // Returns true for a reward that is one term of a sum of rewards.
  bool IsPart(const Map::value_type& any) const {
    const std::string& op = std::get<2>(any.first);
    return &any != Reward() && IsPartOfReward(op);
  }

  // Returns false for a constant that has another cause, or that is not a collapse.
  bool Counts(PolicyKind kind, const Map::value_type& any) const {
    const PolicySeries& series = any.second.course;
    if (kind == PolicyKind::kReward && series.collapsed()) return CountsAsCollapse(any);
    // A term that the policy has learnt stays at its highest value, which is no collapse.
    if (kind == PolicyKind::kReward && IsPart(any)) return series.always_equal();
    if (kind == PolicyKind::kReferenceKl && !series.constant() && IsPreference())
      return series.newest() >= ReferenceCourse::kSequenceFloor;
    if (kind == PolicyKind::kMargin) return false;  // it is evidence for the accuracy of pairs
    if (kind == PolicyKind::kPairAccuracy)
      return Any(PolicyKind::kMargin, [](const auto& s) { return s.found(); });
    if (series.from_the_first())
      return Reward() != nullptr && Reward()->second.course.reward().none();
    if (!series.constant()) return true;
    if (kind == PolicyKind::kReferenceKl)
      return series.reference().always_zero() &&
             !Any(PolicyKind::kKlCoefficient, [](const auto& s) { return s.newest() == 0; });
    return Any(PolicyKind::kMargin, [](const auto& s) { return s.always_in_row(); });
  }

  // The reward of the training, and the score of an evaluation, which falls as a policy learns to
  // get the reward in another way.
  bool FallCounts(const Map::value_type& any) const {
    const std::string& op = std::get<2>(any.first);
    return &any == Reward() || (IsOfEvaluation(op) && !IsRewardOfEpisodes(op));
  }

  // Only the fall of the total reward counts: a policy may lose one term of it to gain another.
  bool CountsAsCollapse(const Map::value_type& any) const {
    if (!FallCounts(any)) return false;
    const std::string& op = std::get<2>(any.first);
    if (&any != Reward()) return true;
    const double part = any.second.course.reward().fall().part();
    if (IsRewardOfEpisodes(op)) return part == 0 || part >= RewardFall::kMost;
    return !IsPartOfReward(op) || RewardsOf() == 1;
  }

  size_t RewardsOf() const {
    return static_cast<size_t>(std::count_if(series_.begin(), series_.end(), [&](const auto& any) {
      return KindOf(std::get<2>(any.first)) == PolicyKind::kReward;
    }));
  }

  // KTO's KL is a sum over a sequence that begins at 0.
  bool IsPreference() const {
    return std::any_of(series_.begin(), series_.end(), [&](const auto& any) {
      const std::string& op = std::get<2>(any.first);
      return KindOf(op) == PolicyKind::kOther && op.find("rewards/chosen") != std::string::npos;
    });
  }

  template <typename What>
  bool Any(PolicyKind kind, const What& what) const {
    return std::any_of(series_.begin(), series_.end(), [&](const auto& any) {
      return KindOf(std::get<2>(any.first)) == kind && what(any.second.course);
    });
  }

  bool MayHaveNoReference(const Map::value_type& any) const {
    const auto some = [](const PolicySeries& /*series*/) { return true; };
    return any.second.course.reference().always_zero() &&
           ZeroMayMeanNoReference(std::get<2>(any.first), Any(PolicyKind::kSpreadlessShare, some));
  }

  // Returns the mean reward. If there are several, returns the first in the order of RankOfReward.
  const Map::value_type* Reward() const {
    const Map::value_type* reward = nullptr;
    for (const auto& any : series_) {
      if (KindOf(std::get<2>(any.first)) != PolicyKind::kReward) continue;
      if (reward == nullptr ||
          RankOfReward(std::get<2>(any.first)) < RankOfReward(std::get<2>(reward->first)))
        reward = &any;
    }
    return reward;
  }

  // Returns, for each condition, the series that shows it first.
  std::map<const CollapseWords*, const Map::value_type*> Leaders() const {
    std::map<const CollapseWords*, const Map::value_type*> leaders;
    for (const auto& any : series_) {
      const PolicyKind kind = KindOf(std::get<2>(any.first));
      const PolicySeries& course = any.second.course;
      if (!course.found() || !Counts(kind, any)) continue;
      const Map::value_type*& leader = leaders[&CollapseWordsOf(kind, course)];
      if (leader == nullptr || course.onset() < leader->second.course.onset()) leader = &any;
    }
    // Rewards that are all equal are also equal within each group, so one report is enough.
    if (leaders.contains(&CollapseWordsOf(PolicyKind::kSpreadlessShare, {})))
      leaders.erase(&CollapseWordsOf(PolicyKind::kReward, {}));
    // A condition that names the cause states the fall of the reward, too.
    const bool named = std::any_of(leaders.begin(), leaders.end(), [&](const auto& leader) {
      const auto& [key, place] = *leader.second;
      return KindOf(std::get<2>(key)) != PolicyKind::kReward && !place.course.constant();
    });
    const auto collapsed = [](const auto& leader) {
      return leader.second->second.course.collapsed();
    };
    if (named) std::erase_if(leaders, collapsed);
    return leaders;
  }

  v1::Level LevelOf(const Map::value_type& any, bool at_the_end) const {
    const PolicyKind kind = KindOf(std::get<2>(any.first));
    const PolicySeries& course = any.second.course;
    const Map::value_type* of_reward = Reward();
    if (course.constant()) return MayHaveNoReference(any) ? v1::LEVEL_NOTE : v1::LEVEL_WARNING;
    if (course.from_the_first()) return v1::LEVEL_NOTE;
    if (of_reward == nullptr || kind == PolicyKind::kPairAccuracy) return v1::LEVEL_WARNING;
    if (course.collapsed()) return LevelOfFall(std::get<2>(any.first), course);
    if (kind == PolicyKind::kReward && IsPart(any)) return v1::LEVEL_NOTE;
    const RewardCourse& reward = of_reward->second.course.reward();
    if (reward.fell()) return v1::LEVEL_ERROR;
    if (kind == PolicyKind::kReferenceKl || kind == PolicyKind::kClipShare)
      return v1::LEVEL_WARNING;
    if (reward.solved() || any.second.solved_then) return v1::LEVEL_NOTE;
    if (kind == PolicyKind::kTruncatedShare)
      return reward.at_its_best() ? v1::LEVEL_NOTE : v1::LEVEL_WARNING;
    if (kind != PolicyKind::kEntropy) return v1::LEVEL_WARNING;
    const bool rises = course.since() < (at_the_end ? kDecided / 2 : kDecided)
                           ? reward.at_its_best()
                           : reward.rose_above(any.second.best_then);
    return rises ? v1::LEVEL_NOTE : v1::LEVEL_WARNING;
  }

  // Returns the names of other series that show the same condition.
  std::string Also(const CollapseWords& words, const Map::value_type& lead) const {
    std::vector<std::string> others;
    for (const auto& any : series_) {
      const PolicyKind kind = KindOf(std::get<2>(any.first));
      const PolicySeries& course = any.second.course;
      if (&any != &lead && course.found() && Counts(kind, any) &&
          &CollapseWordsOf(kind, course) == &words)
        others.push_back(std::get<2>(any.first));
    }
    return absl::StrJoin(others, ", ");
  }

  v1::Verdict Found(const CollapseWords& words, const Map::value_type& lead,
                    v1::Level level) const {
    const std::string& op = std::get<2>(lead.first);
    const PolicyKind kind = KindOf(op);
    const PolicySeries& course = lead.second.course;
    const Map::value_type* reward = Reward();
    std::string text = CollapseText(kind, op, course);
    if (reward != nullptr && !course.collapsed())
      text += RewardText(std::get<2>(reward->first), reward->second.course.reward());
    const bool measured = !course.constant() && !course.from_the_first();
    FindingBuilder found(level, measured                  ? v1::STRENGTH_STATISTICAL
                                : level == v1::LEVEL_NOTE ? v1::STRENGTH_HEURISTIC
                                                          : v1::STRENGTH_PROVED);
    found.Title(words.title)
        .Explain(std::move(text))
        .Cause(words.cause, 0.8)
        .Measured(words.measure, CollapseMeasure(kind, course))
        .Threshold(words.threshold, words.source)
        .Samples(course.points())
        .Witness("step", static_cast<double>(course.onset()))
        .Witness("value", course.measured())
        .Fix(level == v1::LEVEL_NOTE ? FixOfNote(op, course) : words.fix)
        .At(std::get<1>(lead.first), op, course.onset(),
            std::max(course.onset(), lead.second.step_last),
            std::vector<uint32_t>{lead.second.rank});
    if (measured) found.FalseAlarm("measured", kCollapseAlarms);
    google::protobuf::Struct& details = *found.verdict().mutable_details();
    Put(details, "series", op);
    Put(details, "step", static_cast<double>(course.onset()));
    Put(details, "kind", words.cause);
    if (const std::string also = Also(words, lead); !also.empty()) Put(details, "also", also);
    return found.Take();
  }

  const SeriesRoles roles_;  // roles that the user assigned
  Map series_;
  std::set<Key> other_losses_;
  std::map<std::string, v1::Level> stated_;  // cause -> reported level
  bool is_policy_ = false;                   // a series was seen that only training of a policy has
  bool news_ = false;                        // a finding may be new
  ZeroCounts counts_;
  SiteMemo<PolicyKind> known_;
};

}  // namespace

CatalogueEntry rl_collapse() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<RlCollapse>(options);
          }};
}

}  // namespace plumbline::rules
