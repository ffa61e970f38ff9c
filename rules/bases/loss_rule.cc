#include "rules/bases/loss_rule.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace plumbline::rules {

void LossRule::Judge(const SiteStep& step, VerdictSink& /*out*/) {
  const bool scalar = !step.items.empty() && step.items.front().evidence->has_scalar();
  if (scalar) shared_.Take(step, roles_);
}

void LossRule::JudgeStep(const StepEnd& step, VerdictSink& out) {
  LossRun& run = shared_.run();
  const std::vector<LossRun::Reported>& reported = run.Close(step);
  ReportAll(reported, run.touched(), out);
}

// From the second row on. Judge receives every column of the first row, and by then the rules share
// one run.
size_t LossRule::TakeRows(const ScalarRows& rows, size_t first, VerdictSink& out) {
  if (first == 0) return 0;
  LossRun& run = shared_.run();
  const size_t taken = run.TakeRows(rows, first, roles_);
  if (taken > 0) ReportAll(run.reported(), run.touched(), out);
  return taken;
}

void LossRule::JudgeLate(const RunSummary& /*run*/, VerdictSink& out) {
  LossRun& run = shared_.run();
  if (run.HearLate(&heard_late_)) ReportAll(run.late_reported(), run.late_touched(), out);
}

template <typename What>
void LossRule::OfStated(const LossSeries& series, const What& what) {
  if (series.number >= by_number_.size()) by_number_.resize(series.number + 1);
  Stated*& known = by_number_[series.number];
  if (known == nullptr) {
    const auto found = stated_.find({series.of, series.layer, series.op});
    known = found == stated_.end() ? &nothing_ : &found->second;
  }
  if (known != &nothing_) return what(*known);
  Stated stated;
  what(stated);
  if (stated.any()) known = &(stated_[{series.of, series.layer, series.op}] = std::move(stated));
}

template <typename Make>
void LossRule::Report(const LossSeries& series, const Make& make, VerdictSink& out) {
  OfStated(series, [&](Stated& stated) {
    std::optional<FindingBuilder> found = make(stated);
    if (!found) return;
    stated.found = true;
    out.Add(found->Take());
  });
}

void LossRule::ReportAll(const std::vector<LossRun::Reported>& reported,
                         const std::vector<const LossSeries*>& touched, VerdictSink& out) {
  for (const LossRun::Reported& one : reported) {
    Report(
        *one.series, [&](Stated& stated) { return Emit(*one.series, one.event, stated); }, out);
  }
  for (const LossSeries* series : touched) {
    Report(
        *series, [&](Stated& stated) { return Look(*series, false, stated); }, out);
  }
}

void LossRule::JudgeRun(const RunSummary& summary, VerdictSink& out) {
  LossRun& run = shared_.run();
  for (const LossRun::Reported& reported : run.Finish(summary)) {
    Report(
        *reported.series,
        [&](Stated& stated) { return Emit(*reported.series, reported.event, stated); }, out);
  }
  for (const auto& [key, series] : run.series()) {
    bool found = false;
    const auto look = [&, &of = series](Stated& stated) { return Look(of, true, stated); };
    Report(series, look, out);
    OfStated(series, [&](const Stated& stated) { found = stated.found; });
    if (found) continue;
    std::optional<v1::Verdict> rest = Rest(series);
    if (!rest) continue;
    google::protobuf::Struct& details = *rest->mutable_details();
    Put(details, "series", series.op);
    Put(details, "points", static_cast<double>(series.detector.points()));
    Put(details, "role", NameOf(series.role));
    const uint32_t ranks[] = {series.rank};
    SetPlace(*rest, series.layer, series.op, series.step_first, series.step_last, ranks);
    out.Add(*std::move(rest));
  }
}

namespace {

// Returns true for a part of a loss that ends a hundred times above its first values: boxes that a
// detector finds do not raise it that far.
bool RoseTooFar(const LossSeries& series) {
  constexpr double kMost = 100;
  constexpr size_t kFirst = 3;
  const auto& blocks = series.detector.course().blocks();
  if (series.share == LossSeries::Share::kWhole || series.detector.linear() ||
      blocks.size() < 2 * kFirst)
    return false;
  double highest = -HUGE_VAL;
  for (size_t i = 0; i < kFirst; ++i) highest = std::max(highest, blocks[i].median);
  return blocks.back().median - highest >= std::log(kMost);
}

}  // namespace

bool LossRule::MayBeCopied(const LossSeries& evaluation) const {
  const auto points = static_cast<int64_t>(evaluation.detector.points());
  const bool counted =
      evaluation.step_first <= 1 && evaluation.step_last - evaluation.step_first == points - 1;
  if (counted) return false;
  int64_t rows = 0;
  for (const auto& [key, series] : shared_.run().series()) {
    if (series.of == evaluation.of && series.role == SeriesRole::kLoss)
      rows = std::max(rows, static_cast<int64_t>(series.detector.points()));
  }
  return 2 * points > rows;
}

void LossRule::Soften(const LossSeries& series, FindingBuilder* found) const {
  const bool far = !IsPolicy() && RoseTooFar(series);
  found->Level(far ? std::min(found->finding().level(), v1::LEVEL_WARNING) : v1::LEVEL_NOTE)
      .Assume(series.share != LossSeries::Share::kWhole
                  ? "it is a part of the loss: another training loss is also recorded"
                  : "it is a sum over models that train against each other; their own losses, or "
                    "rewards of episodes, are also recorded");
}

void LossRule::Persist(Archive& archive) {
  archive.Version(12, 12);  // 10: penalties; 11: parts that are switched on; 12: jumps of a rate
  archive(shared_, stated_);
  by_number_.clear();
}

std::string HowFar(double part, double level, double scale, bool linear) {
  if (!linear) return absl::StrFormat("%.3g %%", 100 * ShareOf(part, level, scale, false));
  return absl::StrFormat("%.3g (%.3g times its scale)", part, part / scale);
}

Height HeightOf(double part, double level, double scale, bool linear) {
  if (linear) return {part / scale, "scales"};
  return {100 * ShareOf(part, level, scale, false), "%"};
}

double ThirdOf(double level, double scale, bool linear) {
  return HeightOf(PartOf(1.0 / 3, level, scale, linear), level, scale, linear).value;
}

bool Overfits(const LossSeries& series, const Excursion& e) {
  return series.evaluation() && series.training_falls() && (!e.jumped || e.grew());
}

bool MayBeNoise(const LossSeries& series, const Excursion& e) {
  constexpr uint64_t kShort = 64;  // points: the scale of fewer is a poor estimate
  constexpr double kQuiet = 1.5, kWithin = 8;
  if (e.window >= kShort) return false;
  const double sigma = series.detector.NeighbourSigma();
  return sigma > kQuiet * e.scale && e.peak < kWithin * sigma;
}

void SoftenNoise(const LossSeries& series, const Excursion& e, FindingBuilder* found) {
  const double peak = e.linear ? e.peak_value : std::log(e.peak_value);
  if (series.detector.GoesUpAndDown(e.level, peak, e.onset_step)) {
    found->Level(v1::LEVEL_NOTE)
        .Assume(
            "the loss goes up and down between two levels, as where each step draws one of "
            "several tasks: it was as high before, and came back");
    return;
  }
  if (!MayBeNoise(series, e)) return;
  found->Level(v1::LEVEL_NOTE)
      .Assume(absl::StrFormat("the %d points before it were quiet by chance: the noise of all %d "
                              "points is %.3g times their scale",
                              e.window, series.detector.points(),
                              series.detector.NeighbourSigma() / e.scale));
}

bool LooksUnlearnt(const LossSeries& series) {
  if (series.role != SeriesRole::kLoss || series.detector.linear()) return false;
  // If the rate is 0, nothing can be learnt: health/learning-rate reports that.
  if (series.rate_known && 2 * series.rated < series.detector.points()) return false;
  return series.detector.LookForLearning().flat;
}

std::optional<std::string> MayHaveConverged(const LossSeries& series, double level) {
  constexpr double kLearnt = 0.9;  // share of the loss of a uniform guess
  const double points = static_cast<double>(series.detector.points());
  const double every = static_cast<double>(series.step_last - series.step_first) / (points - 1);
  if (static_cast<double>(series.step_first) > 2 * every + 1)
    return "the log starts after the start of the run: the model may have learnt before";
  if (series.epoch < 1)
    return "the first epoch has not ended: the model may have converged before this run";
  if (series.classes >= 2 && level < kLearnt * std::log(series.classes))
    return absl::StrFormat(
        "the loss started at %.4g, below a uniform guess over %.0f classes (%.4g): the model had "
        "learnt before this run",
        level, series.classes, std::log(series.classes));
  return std::nullopt;
}

void DescribeExcursion(const LossSeries& series, const Excursion& excursion,
                       FindingBuilder* found) {
  found->Samples(excursion.window)
      .Witness("onset_step", static_cast<double>(excursion.onset_step))
      .Witness("level", excursion.value(excursion.level))
      .Witness("peak", excursion.peak_value)
      .Witness("peak_step", static_cast<double>(excursion.peak_step))
      .Witness("scale", excursion.scale)
      .Witness("points", static_cast<double>(excursion.points))
      .Witness("points_above", static_cast<double>(excursion.above));
  if (!series.rate_known)
    found->Assume("the learning rate did not rise again (no learning rate is recorded)");
}

std::string RestartWords(const Excursion& excursion) {
  const ScheduleRestart& cause = excursion.cause;
  return absl::StrFormat("the learning rate restarted in step %d, from %.3g to %.3g", cause.step,
                         cause.from, cause.to);
}

std::string BlameResume(const LossSeries& series, int64_t onset, FindingBuilder* found) {
  if (!series.AtResume(onset)) return "";
  found->Cause("resume", 0.9)
      .Fix(
          "Compare the loaded state with the saved one: the optimizer's state (moments, step), the "
          "scheduler, the order of the data, casts of weights. No batch is the cause.");
  return absl::StrFormat(" It begins at a resume, whose first step is %d.", series.resumed_at);
}

void PlaceOnset(const LossSeries& series, int64_t onset, int64_t last, const std::string& kind,
                FindingBuilder* found) {
  const uint32_t ranks[] = {series.rank};
  found->At(series.layer, series.op, onset, last < onset ? onset : last, ranks);
  google::protobuf::Struct& details = *found->verdict().mutable_details();
  Put(details, "series", series.op);
  Put(details, "step", static_cast<double>(onset));
  Put(details, "kind", kind);
  Put(details, "role", NameOf(series.role));
}

std::optional<v1::Verdict> FewPoints(const LossSeries& series, uint64_t fewest) {
  const uint64_t points = series.detector.points();
  if (points >= fewest) return std::nullopt;
  return Inconclusive(
      absl::StrCat("few-points: ", points, " finite values, ", fewest, " are needed for a pass"));
}

}  // namespace plumbline::rules
