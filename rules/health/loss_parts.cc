#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/policy/policy.h"
#include "analysis/role/role.h"
#include "analysis/series/series.h"
#include "rules/bases/companions.h"
#include "rules/bases/loss_part.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# health/loss-parts

A part of a loss explodes, the loss of one side of a game (a discriminator, for example) stays 0, a detector gets no labels, or experts lose their balance.

**Why.** Losses of critics, generators and discriminators rise in healthy runs, so the rules on losses do not judge them. A value loss or a Q loss that grows a million times is not healthy: the critic diverges, and the policy follows it. If the loss of a discriminator stays 0, the generator gets no gradient to learn from. A detector whose box loss is exactly 0 in each row never saw a box: the labels were not found, and it learns to predict nothing.

**Bad.** `losses/qf1_loss` 0.8 in the first rows and 1e11 in the last; `Loss_D` 0.0000 in the last 50 rows while `Loss_G` rises to 40; `box_loss` 0 in each of 20 epochs.

**Good.** A value loss that grows a thousand times as rewards come; a discriminator at 0.3 whose loss is 0.01 now and then; a term that is switched on later; a balancing loss of 1.0 that ends at 1.6, or whose coefficient ramps up from 0.

**How to fix it.**
- Explodes: lower the critic's rate, clip its gradient norm, normalise rewards; for Q losses check the target network (`tau`), the discount and the sign of terminal states.
- A side is 0: lower the discriminator's rate, add a gradient penalty or spectral norm, smooth its labels; restart from before.
- No labels: check the paths of the label files, their class numbers, and that the loader reports boxes (YOLO: `Instances`).

**What it checks.** Series of role `auxiliary-loss`, and losses of boxes (`box_loss`, `dfl_loss`, `giou_loss`).
- *Explodes*: the median absolute value of the newest five points is a million times the largest of the first ten, which count as 1 at least. An error if the run's reward fell as well (as `health/rl-collapse` has it), else a warning; a note if it came back to under a thousand times by the end. If the reward fell back to its start (by four fifths of its rise), ten thousand times are enough. If it fell, the loss itself (`loss` of a DQN, whose rise is a note of `health/loss-divergence`) is judged too.
- *Zero side*: the loss of a generator or a discriminator that was never negative is at most a thousandth of the median of its first ten points, in each of the newest ten points and in the newest eighth of all, at the end of the run. A warning if the other side's loss is three times as high as it began, else a note. Four points of exactly 0 and a quarter of all are enough from ten points on, if none was 0 before and the first values are at 0.02 or above; the other side then must be at 1.5 times its beginning.
- *A copy that gets worse*: in a run with a generator or a discriminator, a loss that compares what is generated with a target (`mel`, `cycle`, `idt`, `rec`, `recon`, `l1`, `stft`, `pixel` in its name) is, from ten points on, 1.3 to 1.5 times (1 and four standard deviations of its noise) its largest value before, in each of the newest four points and a fifth of all, at the end of the run. A warning; an error if a side is 0 for good as well.
- *Unbalanced*: a loss of balancing (`balance`, `balancing` or `lb` in its name, not of classes or data; `aux` alone, or with `moe`, `router`, `expert`) that was never negative, whose first ten points differ by at most a half, is 2.5 times the largest of these in each of the newest ten points and in the newest eighth of all, at the end of the run: a warning. In the form of Switch Transformer it is 1 for even experts and their number for one.
- *No labels*: the losses of boxes are all exactly 0 in each of eight points or more, at the end of the run: a warning.

**Strength.** `heuristic`: the bounds are customary, far outside what healthy games do. None of 2,000 simulated healthy games has a finding (`loss_parts_test.cc`).

**Inconclusive when** a series has under 15 points.

**What it cannot see.** A critic that diverges by less than a million times; a game whose sides are not named (docs/scalars.md has the words).

**Cost.** 200 bytes a series.

**Sources.** Fujimoto et al., "Addressing Function Approximation Error in Actor-Critic Methods", 2018; Arjovsky and Bottou, "Towards Principled Methods for Training Generative Adversarial Networks", 2017; Ultralytics' documentation (`no labels found`).
)page";

constexpr RuleInfo kInfo = {"health/loss-parts",
                            "a part of the loss explodes, or is 0 for good",
                            v1::LEVEL_WARNING,
                            "0.2.0",
                            kPage,
                            {},
                            /*alpha_weight=*/0,
                            /*decides_early=*/true};

constexpr uint64_t kFewestBoxes = 8;
class LossParts : public ScalarRule {
 public:
  explicit LossParts(const Options& options) : roles_(options.roles()) {}

  bool ReadsScalar(const v1::Site& site) const override {
    return RoleOf(site.op()) != SeriesRole::kNone;
  }
  bool judges_unseen_steps() const override { return false; }

  void Judge(const SiteStep& step, VerdictSink& out) override {
    Known& known = KnownOf(step);
    const SeriesRole role = known.role;
    if (role == SeriesRole::kNone) return;
    const auto item = std::find_if(step.items.begin(), step.items.end(),
                                   [](const Item& any) { return any.evidence->has_scalar(); });
    if (item == step.items.end()) return;
    const double value = item->evidence->scalar().value();
    if (!std::isfinite(value)) return;  // health/loss-non-finite reports it
    if (known.reward == nullptr && known.part == nullptr) {
      Key key{step.role, step.site.layer(), step.site.op()};
      if (role == SeriesRole::kReward) {
        known.reward = &rewards_[std::move(key)];
      } else {
        known.part = &*parts_.try_emplace(std::move(key)).first;
        known.part->second.role = role;
        known.part->second.whole = role == SeriesRole::kLoss && !IsLossOfBoxes(step.site.op());
      }
    }
    if (known.reward != nullptr) {
      known.reward->Take(step.step, value);
      return;
    }
    LossPart& part = known.part->second;
    part.rank = item->source->rank();
    if (part.Take(step.step, value) && !part.whole) out.Add(Exploded(*known.part));
  }

  const void* judges_apart() const override { return this; }
  // Takes rows of known series in which no part is near an explosion.
  size_t TakeRows(const ScalarRows& rows, size_t first, VerdictSink& /*out*/) override {
    size_t taken = rows.size() - first;
    for (const ScalarColumn& column : rows.columns) {
      const Known& known = KnownOf(column.any());
      if (known.part == nullptr && known.reward == nullptr) return 0;
      if (known.part == nullptr || known.part->second.exploded) continue;
      if (known.part->second.points < kFewestOfPart) return 0;
      size_t near = 0;
      while (near < taken && !(std::fabs(column.value(first + near)) >= kMillion)) ++near;
      taken = near;
    }
    for (const ScalarColumn& column : rows.columns) {
      const Known& known = KnownOf(column.any());
      for (size_t row = first; row < first + taken; ++row) {
        const double value = column.value(row);
        if (!std::isfinite(value)) continue;
        if (known.reward != nullptr) {
          known.reward->Take(rows.steps[row], value);
          continue;
        }
        known.part->second.rank = column.source().rank();
        known.part->second.Take(rows.steps[row], value);
      }
    }
    return taken;
  }

  void JudgeRun(const RunSummary& /*run*/, VerdictSink& out) override {
    for (const auto& any : parts_) {
      const auto& [key, part] = any;
      const bool fell = (part.exploded && AnyReward(&RewardCourse::fell)) ||
                        (part.left() && AnyReward(&RewardCourse::fell_back));
      const bool beyond = part.beyond() && IsCopy(std::get<2>(key)) && HasSides();
      if (part.whole && !fell && !beyond) continue;  // health/loss-divergence judges it
      if (part.exploded || fell) {
        out.Add(Exploded(any));
      } else if (IsSide(std::get<2>(key)) && (part.zero_for_good() || part.exactly_zero())) {
        out.Add(ZeroSide(any));
      } else if (beyond) {
        out.Add(CopyRose(any));
      } else if (part.unbalanced_for_good() && IsBalanceLoss(std::get<2>(key))) {
        out.Add(Unbalanced(any));
      } else if (LacksLabels(any)) {
        out.Add(NoLabels(any));
      } else {
        v1::Verdict rest =
            part.points < kFewestOfPart
                ? Inconclusive(absl::StrFormat("few-points: %d points; the rule needs %d",
                                               part.points, kFewestOfPart))
                : Pass("it neither explodes nor is 0 for good");
        SetPlace(rest, std::get<1>(key), std::get<2>(key), part.first, part.last,
                 std::vector<uint32_t>{part.rank});
        out.Add(std::move(rest));
      }
    }
  }

  void Persist(Archive& archive) override {
    archive.Version(6, 6);  // 4: balance of experts; 5: newest rewards; 6: games of few points
    archive(parts_, rewards_);
    if (archive.reading()) known_ = {};
  }

 private:
  using Key = std::tuple<v1::Role, std::string, std::string>;  // role, layer, op
  using Map = std::map<Key, LossPart>;

  // Cached facts of a site; recomputed after a restore.
  struct Known {
    SeriesRole role = SeriesRole::kNone;
    RewardCourse* reward = nullptr;  // set when the series exists, or `part`
    Map::value_type* part = nullptr;
  };

  Known& KnownOf(const SiteStep& step) {
    return known_.Of(step, [&] { return Known{RoleOf(step.site.op())}; });
  }

  // Returns kAuxiliaryLoss, kLoss for a training loss, kReward for a mean reward, else kNone.
  SeriesRole RoleOf(const std::string& op) const {
    const SeriesRole role = roles_.Of(op);
    switch (role) {
      case SeriesRole::kAuxiliaryLoss:
      case SeriesRole::kLoss:
        return role;
      case SeriesRole::kReward:
        return PolicyMetricOf(op, role).kind == PolicyKind::kReward ? role : SeriesRole::kNone;
      case SeriesRole::kNone:
        return IsReturn(op) ? SeriesRole::kReward : role;
      default:
        return SeriesRole::kNone;
    }
  }

  bool HasSides() const {
    const auto side = [](const auto& any) { return IsSide(std::get<2>(any.first)); };
    return std::any_of(parts_.begin(), parts_.end(), side);
  }
  bool AnySideLost() const {
    return std::any_of(parts_.begin(), parts_.end(), [](const auto& any) {
      const LossPart& part = any.second;
      return IsSide(std::get<2>(any.first)) && (part.zero_for_good() || part.exactly_zero());
    });
  }

  bool AnyReward(bool (RewardCourse::*fell)() const) const {
    return std::any_of(rewards_.begin(), rewards_.end(),
                       [fell](const auto& any) { return (any.second.*fell)(); });
  }

  // Returns the other side of the game whose loss rose, if there is one.
  const Map::value_type* Opponent(const Map::value_type& any) const {
    constexpr double kRoseToo = 1.5;  // next to a side of exactly 0, whose points are few
    const GameSide side = SideByName(std::get<2>(any.first));
    const LossPart& part = any.second;
    for (const auto& other : parts_) {
      const std::string& op = std::get<2>(other.first);
      if (!IsSide(op) || SideByName(op) == side) continue;
      const double early = other.second.EarlyOf(part.points - part.zero_rows);
      if (other.second.rose() ||
          (part.exactly_zero() && other.second.level.level() >= kRoseToo * early))
        return &other;
    }
    return nullptr;
  }

  // If all losses of parts are always 0, returns true for the first of them by name, else false. So
  // one finding covers all boxes.
  bool LacksLabels(const Map::value_type& any) const {
    for (const auto& other : parts_) {
      const LossPart& part = other.second;
      if (part.role != SeriesRole::kLoss || part.whole) continue;
      if (part.points < kFewestBoxes || part.zeros != part.points) return false;
    }
    const auto first = std::find_if(parts_.begin(), parts_.end(), [](const auto& other) {
      return other.second.role == SeriesRole::kLoss && !other.second.whole;
    });
    return first != parts_.end() && &*first == &any;
  }

  v1::Verdict Exploded(const Map::value_type& any) const {
    const auto& [key, part] = any;
    const std::string& op = std::get<2>(key);
    const bool back = part.level.level() < kBackAgain * part.start;
    const bool fell = AnyReward(&RewardCourse::fell);
    const v1::Level level = back ? v1::LEVEL_NOTE : fell ? v1::LEVEL_ERROR : v1::LEVEL_WARNING;
    FindingBuilder found(level, v1::STRENGTH_HEURISTIC);
    found
        .Title(back         ? "a part of the loss exploded and came back"
               : part.whole ? "the loss explodes, and the reward falls"
                            : "a part of the loss explodes")
        .Explain(absl::StrFormat(
            "%s is %.4g in step %d (median of five absolute values); its first ten were at most "
            "%.4g. It left them in step %d.%s",
            op, part.level.level(), part.last, part.start, part.away_from,
            fell ? " The reward fell as well." : ""))
        .Cause("explodes", 0.8)
        .Measured("newest / first values", part.level.level() / part.start, "times")
        .Threshold(fell ? kTenThousand : kMillion, fell ? "customary, if the reward falls"
                                                        : "customary: no game moves a loss so far")
        .Samples(part.points)
        .Witness("step", static_cast<double>(part.away_from))
        .Witness("value", part.level.level())
        .Fix(
            "Go back to a checkpoint before that step. Lower the critic's learning rate, clip its "
            "gradient norm, normalise rewards; check its target network and the discount.");
    return Place(any, part.away_from, "explodes", &found);
  }

  v1::Verdict ZeroSide(const Map::value_type& any) const {
    const auto& [key, part] = any;
    const Map::value_type* opponent = Opponent(any);
    FindingBuilder found(opponent != nullptr ? v1::LEVEL_WARNING : v1::LEVEL_NOTE,
                         v1::STRENGTH_HEURISTIC);
    const bool exact = part.exactly_zero();
    const uint64_t before = exact ? part.points - part.zero_rows : part.points;
    const double early = part.EarlyOf(before);
    const int64_t from = exact ? part.zero_from : part.low_from;
    std::string text = absl::StrFormat(
        "%s is %s its beginning (%.4g) in each of the newest %d points, from step %d on.",
        std::get<2>(key), exact ? "exactly 0, no longer at" : "at most a thousandth of", early,
        exact ? part.zero_rows : part.low_rows, from);
    if (opponent != nullptr) {
      text +=
          absl::StrFormat(" %s is %.3g times as high as it began.", std::get<2>(opponent->first),
                          opponent->second.level.level() / opponent->second.EarlyOf(before));
    }
    found.Title("one side of the game has won")
        .Explain(std::move(text))
        .Cause("zero-side", 0.7)
        .Measured("newest / first values", part.level.level() / early, "times")
        .Threshold(exact ? 0 : kZeroShare, exact ? "in four points and a quarter of the run"
                                                 : "in ten points and an eighth of the run")
        .Samples(part.points)
        .Witness("step", static_cast<double>(from))
        .Witness("value", part.level.level())
        .Fix(
            "Go back to a checkpoint before that step. Lower the learning rate of the side that "
            "won, add a gradient penalty or spectral norm, or smooth its labels.");
    return Place(any, from, "zero-side", &found);
  }

  v1::Verdict CopyRose(const Map::value_type& any) const {
    const auto& [key, part] = any;
    const bool lost = AnySideLost();
    const double times = part.level.level() / part.before;
    FindingBuilder found(lost ? v1::LEVEL_ERROR : v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
    found.Title("the generator gets worse: it no longer matches its target")
        .Explain(absl::StrFormat(
            "%s is above %.4g in each of the newest %d points, from step %d on; its largest value "
            "before was %.4g.%s",
            std::get<2>(key), part.far() * part.before, part.beyond_rows, part.beyond_from,
            part.before, lost ? " The loss of one side of the game is 0 for good." : ""))
        .Cause("copy-rises", lost ? 0.9 : 0.7)
        .Measured("newest / largest value before", times, "times")
        .Threshold(part.far(), "in four points and a fifth of the run")
        .Samples(part.points)
        .Witness("step", static_cast<double>(part.beyond_from))
        .Witness("value", part.level.level())
        .Fix(
            "Go back to a checkpoint before that step. Lower the learning rate of the side that "
            "won, add a gradient penalty or spectral norm, or smooth its labels.");
    return Place(any, part.beyond_from, "copy-rises", &found);
  }

  static v1::Verdict Unbalanced(const Map::value_type& any) {
    const auto& [key, part] = any;
    const double times = part.level.level() / part.early;
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
    found.Title("the experts are no longer balanced")
        .Explain(absl::StrFormat(
            "%s is %.4g (median of five), %.3g times its beginning (%.4g), from step %d on. Such a "
            "loss is lowest if all experts get equal shares, as at the beginning.",
            std::get<2>(key), part.level.level(), times, part.early, part.high_from))
        .Cause("router-collapse", 0.8)
        .Measured("newest / first values", times, "times")
        .Threshold(kUnbalanced, "in ten points and an eighth of the run")
        .Samples(part.points)
        .Witness("step", static_cast<double>(part.high_from))
        .Witness("value", part.level.level())
        .Fix(
            "Go back to a checkpoint before that step. Raise the coefficient of the balancing "
            "loss, add a z-loss, run the router in fp32, and lower its learning rate.");
    if (std::get<2>(key).find("aux") != std::string::npos)
      found.Assume("it is the loss that balances a mixture's experts");
    return Place(any, part.high_from, "router-collapse", &found);
  }

  v1::Verdict NoLabels(const Map::value_type& any) const {
    const auto& [key, part] = any;
    FindingBuilder found(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC);
    found.Title("the detector sees no labels")
        .Explain(absl::StrFormat(
            "%s is exactly 0 in each of %d points: no image has a box, and the model learns to "
            "predict none.",
            std::get<2>(key), part.points))
        .Cause("no-labels", 0.85)
        .Measured("points of exactly 0", static_cast<double>(part.zeros), "points")
        .Threshold(static_cast<double>(kFewestBoxes), "all of them")
        .Samples(part.points)
        .Witness("step", static_cast<double>(part.first))
        .Witness("value", 0.0)
        .Fix(
            "Check the paths of the label files next to the images, the class numbers in them, and "
            "the caches of an earlier data set (YOLO: labels.cache).");
    return Place(any, part.first, "no-labels", &found);
  }

  static v1::Verdict Place(const Map::value_type& any, int64_t onset, const char* kind,
                           FindingBuilder* found) {
    const auto& [key, part] = any;
    found->At(std::get<1>(key), std::get<2>(key), onset, std::max(onset, part.last),
              std::vector<uint32_t>{part.rank});
    google::protobuf::Struct& details = *found->verdict().mutable_details();
    Put(details, "series", std::get<2>(key));
    Put(details, "step", static_cast<double>(onset));
    Put(details, "kind", kind);
    return found->Take();
  }

  const SeriesRoles roles_;  // roles that the user assigned
  Map parts_;
  std::map<Key, RewardCourse> rewards_;
  SiteMemo<Known> known_;
};

}  // namespace

CatalogueEntry loss_parts() {
  return {&kInfo, [](const Options& options) -> std::unique_ptr<Rule> {
            return std::make_unique<LossParts>(options);
          }};
}

}  // namespace plumbline::rules
