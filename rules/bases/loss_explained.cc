// LossRule: which other series explain the rise of a loss.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "rules/bases/loss_rule.h"

namespace plumbline::rules {

namespace {

// Returns two rows of a series, in steps; NaN if it has no two.
double TwoRowsOf(const LossSeries& series) {
  constexpr double kRows = 2;
  const auto points = static_cast<double>(series.detector.points());
  if (points < 2) return NAN;
  return kRows * static_cast<double>(series.step_last - series.step_first) / (points - 1);
}

// Returns by how much the newest values lie above those up to a step.
double RoseBy(const LossSeries& series, int64_t onset) {
  const BlockMedians& course = series.detector.course();
  const double rise = RoseSince(course, onset);
  if (series.detector.linear() || course.blocks().empty()) return rise;
  const double end = std::exp(course.blocks().back().median);
  return end - end * std::exp(-rise);
}

// Returns true if a positive loss ends more than ten times above its highest level up to a step.
// Neither other data nor a weight that is logged explains that.
bool BeyondExplanation(const LossSeries& series, int64_t onset) {
  constexpr double kMost = 10;
  if (series.detector.linear()) return false;
  double before = -HUGE_VAL;
  const auto& blocks = series.detector.course().blocks();
  for (const auto& block : blocks)
    before = block.step <= onset ? std::max(before, block.median) : before;
  return !blocks.empty() && std::isfinite(before) &&
         blocks.back().median - before > std::log(kMost);
}

// States what explains the finding: an assumption, and the cause on the first screen.
void Because(std::string text, FindingBuilder* found) {
  Put(*found->verdict().mutable_details(), "because", text);
  found->Assume(std::move(text));
}

constexpr char kOtherData[] =
    " changes in the row in which the loss rises: other data may be the cause, as in a curriculum";

constexpr char kWeighs[] = " moves meanwhile: the rise may be that of the term that it weighs";

}  // namespace

bool LossRule::OfPairs(const LossSeries& series) const {
  const auto known = shared_.run().companions().find(series.of);
  return known != shared_.run().companions().end() && known->second.OfPairs();
}

void LossRule::SoftenByQuality(const LossSeries& series, FindingBuilder* found) const {
  const auto known = shared_.run().companions().find(series.of);
  if (known == shared_.run().companions().end()) return;
  const auto better = known->second.QualityRises();
  if (!better) return;
  found->Level(v1::LEVEL_NOTE);
  Because(absl::StrCat(*better, " improves all the same: the model learns, its loss moves little"),
          found);
}

void LossRule::BlameRate(const LossSeries& series, int64_t onset, FindingBuilder* found) const {
  const auto jump = shared_.run().RateJumped(series.of, onset, 2 * TwoRowsOf(series));
  if (!jump || found->finding().level() == v1::LEVEL_NOTE || series.AtResume(onset)) return;
  const auto& [op, rate] = *jump;
  Because(absl::StrFormat("%s rose from %.3g to %.3g (%.3g times) in step %d", op, rate.from,
                          rate.to, rate.to / rate.from, rate.step),
          found);
  found->Cause("rate-jump", 0.9)
      .Fix(
          "Go back to a checkpoint before the onset, and set the learning rate back: a schedule, a "
          "resume or another unit raised it.");
}

bool LossRule::SoftenSwitchedOn(const LossSeries& series, int64_t onset, double rise,
                                FindingBuilder* found) const {
  const auto known = shared_.run().companions().find(series.of);
  if (known == shared_.run().companions().end()) return false;
  const auto on = known->second.SwitchedOn(onset, TwoRowsOf(series), series.step_first);
  if (!on || (on->first != series.op && !(2 * on->second >= rise))) return false;
  found->Level(v1::LEVEL_NOTE);
  Because(on->first + " is 0 or absent up to there: a part of the loss is switched on", found);
  return true;
}

namespace {

// Median values of the three blocks before a step, of the three after it, and of the newest three.
struct JumpLevels {
  double before = NAN, after = NAN, end = NAN;
};

JumpLevels JumpOf(const LossSeries& series, int64_t onset) {
  constexpr size_t kOfJump = 3;
  const auto& blocks = series.detector.course().blocks();
  const auto first = std::find_if(blocks.begin(), blocks.end(),
                                  [&](const auto& block) { return block.step >= onset; });
  const auto before = static_cast<size_t>(first - blocks.begin());
  if (series.detector.linear() || before < kOfJump || blocks.size() - before < 2 * kOfJump)
    return {};
  const auto level = [&](size_t from) {
    std::vector<double> values;
    for (size_t i = from; i < from + kOfJump; ++i) values.push_back(blocks[i].median);
    return std::exp(MedianOf(values));
  };
  return {level(before - kOfJump), level(before), level(blocks.size() - kOfJump)};
}

}  // namespace

bool LossRule::SoftenModel(const LossSeries& series, int64_t onset, FindingBuilder* found) const {
  constexpr double kAnew =
      1.25;  // a model that begins anew has at most this part of the first loss
  const auto known = shared_.run().companions().find(series.of);
  if (known == shared_.run().companions().end() || series.detector.linear()) return false;
  const auto model =
      known->second.PhaseNear(onset, TwoRowsOf(series), series.detector.points(), true);
  const auto& blocks = series.detector.course().blocks();
  const bool higher = std::any_of(blocks.begin(), blocks.end(), [&](const auto& block) {
    return block.step >= onset && block.median > blocks[0].median + std::log(kAnew);
  });
  if (!model || higher) return false;
  found->Level(v1::LEVEL_NOTE);
  Because(*model + " changes there: another model begins to learn", found);
  return true;
}

void LossRule::SoftenPart(const LossSeries& series, int64_t onset, FindingBuilder* found) const {
  constexpr double kAccounts = 0.7, kRises = 1.05;  // a larger factor than noise has
  if (found->finding().level() != v1::LEVEL_ERROR || !TrainingFalls(series)) return;
  const JumpLevels whole = JumpOf(series, onset);
  if (!(whole.end <= kRises * whole.after)) return;
  for (const auto& [key, part] : shared_.run().series()) {
    if (part.of != series.of || part.role != SeriesRole::kLoss || part.share >= series.share)
      continue;
    const JumpLevels of = JumpOf(part, onset);
    if (!(of.end <= kRises * of.after && of.after <= whole.after)) continue;
    if (!(of.after - of.before >= kAccounts * (whole.after - whole.before))) continue;
    found->Level(v1::LEVEL_WARNING);
    Because(part.op +
                " jumps in the same rows and does not rise further, while another part falls: its "
                "weight may have changed",
            found);
    return;
  }
}

void LossRule::SoftenExplained(const LossSeries& series, FindingBuilder* found) const {
  const auto& fields = found->finding().witness().fields();
  const auto at = fields.find(std::string("onset_step"));
  const auto known = shared_.run().companions().find(series.of);
  if (at == fields.end() || found->finding().level() == v1::LEVEL_NOTE) return;
  const auto onset = static_cast<int64_t>(at->second.number_value());
  BlameRate(series, onset, found);
  if (SoftenSwitchedOn(series, onset, RoseBy(series, onset), found)) return;
  if (SoftenModel(series, onset, found)) return;
  if (BeyondExplanation(series, onset)) return;
  SoftenPart(series, onset, found);
  std::optional<std::string> phase, weight, better;
  if (known != shared_.run().companions().end()) {
    const Companions& companions = known->second;
    phase = companions.PhaseNear(onset, TwoRowsOf(series), series.detector.points());
    weight = companions.WeightMoved(onset, TwoRowsOf(series));
    better = companions.QualityImproved(onset, series.step_last);
    const auto [term, rose] = companions.TermRose(onset);
    const bool accounts = 2 * rose >= RoseBy(series, onset);
    if ((weight || accounts) && TrainingFalls(series)) {
      found->Level(v1::LEVEL_NOTE);
      Because(absl::StrCat(weight ? *weight + " moves" : term + " grows",
                           " meanwhile, and a part of the loss falls: the rise is that of "
                           "another part or of its weight"),
              found);
      return;
    }
  }
  if (found->finding().level() != v1::LEVEL_ERROR) return;
  const LossSeries* evaluation = shared_.run().EvaluationImproved(series, onset);
  if (phase) {
    found->Level(v1::LEVEL_WARNING);
    Because(*phase + kOtherData, found);
  } else if (weight) {
    found->Level(v1::LEVEL_WARNING);
    Because(*weight + kWeighs, found);
  } else if (evaluation != nullptr || better) {
    found->Level(v1::LEVEL_WARNING);
    Because((evaluation != nullptr ? evaluation->op : *better) +
                " improves up to the end: the training loss may rise by design (stronger "
                "augmentation, a teacher that moves)",
            found);
  }
}

void LossRule::SoftenJump(const LossSeries& series, const Excursion& e,
                          FindingBuilder* found) const {
  const auto known = shared_.run().companions().find(series.of);
  if (known == shared_.run().companions().end() || found->finding().level() == v1::LEVEL_NOTE)
    return;
  const double within = TwoRowsOf(series);
  if (!e.by_schedule()) BlameRate(series, e.onset_step, found);
  if (SoftenSwitchedOn(series, e.onset_step, e.peak_value - e.value(e.level), found)) return;
  if (SoftenModel(series, e.onset_step, found)) return;
  const auto phase = known->second.PhaseNear(e.onset_step, within, series.detector.points());
  if (phase && e.kind != ExcursionKind::kDivergence) {
    found->Level(v1::LEVEL_NOTE);
    Because(*phase + kOtherData, found);
    return;
  }
  // A jump is that of a weight only if the weight moves in the same rows.
  const bool jump = e.jumped && !e.grew();
  const auto weight = known->second.WeightMoved(
      e.onset_step, within, jump ? static_cast<double>(e.onset_step) + within : HUGE_VAL);
  if (!weight) return;
  found->Level(v1::LEVEL_NOTE);
  Because(*weight + kWeighs, found);
}

}  // namespace plumbline::rules
