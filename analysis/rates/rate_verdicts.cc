// Texts of the findings on a learning rate. rate_course.cc and apart.cc detect the faults; this
// file makes a title, a witness and a fix of each.
#include "analysis/rates/rate_verdicts.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace plumbline::analysis {
namespace {

constexpr char kCountOnce[] =
    "Step the scheduler once per optimizer step: Accelerate steps it once per process "
    "(step_scheduler_with_optimizer, split_batches). Do not step it in every micro-batch.";
constexpr int64_t kFewSteps = 10;

// Sets what all of them have: the place, and the details of every health finding.
FindingBuilder Begun(const std::string& op, int64_t first, int64_t last, const char* kind,
                     v1::Level level = v1::LEVEL_WARNING,
                     v1::Strength strength = v1::STRENGTH_PROVED) {
  FindingBuilder found(level, strength);
  SetPlace(found.verdict(), "", op, first, last, std::initializer_list<uint32_t>{});
  google::protobuf::Struct& details = *found.verdict().mutable_details();
  Put(details, "series", op);
  Put(details, "step", static_cast<double>(first));
  Put(details, "kind", kind);
  return found;
}

}  // namespace

// ---- effects of a resume ----

FindingBuilder RestartFinding(const std::string& op, const RateRestart& r) {
  FindingBuilder found = Begun(op, r.after.step, r.after.step, "restart");
  found.Title("the learning rate schedule restarts after a resume")
      .Explain(absl::StrFormat("%s is %.6g in step %d, the first after a resume; it had fallen "
                               "from %.6g to %.6g in step %d, from which the resume continues.",
                               op, r.after.rate, r.after.step, r.highest, r.before.rate,
                               r.before.step))
      .Cause("schedule-not-restored", 0.8)
      .Measured("rate after the resume / its maximum", r.after.rate / r.highest, "share")
      .Threshold(0.5, "half of the maximum and twice the rate before the resume")
      .Fix(
          "Save and load the scheduler's state with the optimizer's (scheduler.state_dict(); "
          "Megatron-LM without --override-opt_param-scheduler), or pass last_epoch.")
      .Samples(2)
      .Witness("rate_before", r.before.rate)
      .Witness("step_before", static_cast<double>(r.before.step))
      .Witness("rate", r.after.rate)
      .Witness("highest", r.highest)
      .Assume("the resume must continue the schedule, not start a new one");
  return found;
}

// ---- no rate at all ----

FindingBuilder ZeroFinding(const std::string& op, const RankRate& rate, const std::string& ranks,
                           bool declared) {
  const bool fell = std::isfinite(rate.before);
  FindingBuilder found =
      Begun(op, rate.zeros_first, rate.zeros_last, "zero", v1::LEVEL_ERROR, v1::STRENGTH_PROVED);
  found.Title(fell ? "the learning rate fell to zero" : "the learning rate is zero from the start")
      .Explain(absl::StrFormat("%s is 0 on %s in %d consecutive steps, the first is step %d%s: "
                               "these steps change no weight.",
                               op, ranks, rate.zeros, rate.zeros_first,
                               fell ? absl::StrFormat(", and was %.3g before", rate.before) : ""))
      .Cause(fell ? "schedule-over" : "never-started", 0.9)
      .Measured("consecutive steps with a learning rate of 0", static_cast<double>(rate.zeros),
                "steps")
      .Threshold(static_cast<double>(kZeroRateSteps),
                 "a warm-up is above 0 from its second step on")
      .Fix(fell ? "Set the length of the schedule in optimizer steps of the whole run (T_max, "
                  "total_steps, --lr-decay-iters), or end the run at its end."
                : "Check the length of the warm-up, and that scheduler.step() is called.")
      .Samples(rate.zeros)
      .Witness("step", static_cast<double>(rate.zeros_first))
      .Witness("rate", 0.0);
  if (fell) found.Witness("rate_before", rate.before);
  if (fell && !declared)
    found.Assume("the run continues (its length was not declared, option steps)");
  return found;
}

// A log with few printed digits shows a small rate as 0, so it is no proof.
FindingBuilder PrintedZeroFinding(const std::string& op, const RankRate& rate,
                                  const std::string& ranks) {
  const double grain = rate.grain.grain();
  FindingBuilder found = Begun(op, rate.zeros_first, rate.zeros_last, "printed-zero",
                               v1::LEVEL_NOTE, v1::STRENGTH_HEURISTIC);
  const bool fell = std::isfinite(rate.before);
  found
      .Title(fell ? "the logged learning rate is zero, with few digits"
                  : "the logged learning rate is zero in all steps")
      .Explain(fell ? absl::StrFormat(
                          "The logged %s is 0 on %s from step %d on, and %.3g before. Its values "
                          "are multiples of %.3g, so it is below %.3g, and may be above 0.",
                          op, ranks, rate.zeros_first, rate.before, grain, grain / 2)
                    : absl::StrFormat("The logged %s is 0 on %s in all %d steps: it is 0 (for "
                                      "example in a frozen group), or the log has too few digits.",
                                      op, ranks, rate.zeros))
      .Cause("few-digits", 0.5)
      .Measured("consecutive steps with a logged rate of 0", static_cast<double>(rate.zeros),
                "steps")
      .Threshold(static_cast<double>(kZeroRateSteps),
                 "a warm-up is above 0 from its second step on")
      .Fix(fell ? "Log the learning rate with its exponent (%.3e), so that it can be judged."
                : "If it is intended, do nothing. In a log, print the learning rate with its "
                  "exponent (%.3e).")
      .Samples(rate.zeros)
      .Witness("step", static_cast<double>(rate.zeros_first));
  if (fell) found.Witness("rate_before", rate.before);
  return found;
}

namespace {

FindingBuilder SureZeroFinding(const std::string& op, const RankRate& rate,
                               const std::string& ranks, uint32_t digits) {
  FindingBuilder found = ZeroFinding(op, rate, ranks, false);
  const std::string why =
      rate.unrounded ? "The log prints the 0 with an exponent or without decimals"
                     : absl::StrFormat("Other values in the log have up to %d digits", digits);
  found
      .Explain(
          absl::StrFormat("%s is 0 on %s in all %d steps, and the loss does not fall. %s, so the 0 "
                          "is not a rounded value.",
                          op, ranks, rate.zeros, why))
      .Witness("digits_of_neighbours", static_cast<double>(digits));
  return found;
}

FindingBuilder FlatZeroFinding(const std::string& op, const RankRate& rate,
                               const std::string& ranks) {
  FindingBuilder found = PrintedZeroFinding(op, rate, ranks);
  found.Level(v1::LEVEL_WARNING)
      .Title("the logged learning rate is zero, and the loss is flat")
      .Explain(
          absl::StrFormat("The logged %s is 0 on %s in all %d steps, with few digits, and the loss "
                          "does not change: the rate is 0, or too small for the model to learn.",
                          op, ranks, rate.zeros))
      .Cause("never-started", 0.7)
      .Fix(
          "Print the learning rate with its exponent (%.3e), check the length of the warm-up, and "
          "that scheduler.step() is called.");
  return found;
}

}  // namespace

FindingBuilder AlwaysZeroFinding(const std::string& op, const RankRate& rate,
                                 const std::string& ranks, const RateNeighbours& neighbours) {
  const bool always = std::isnan(rate.before) && !neighbours.done();
  const bool exact = neighbours.whole_digits() || rate.unrounded;
  if (always && exact && !neighbours.Learns())
    return SureZeroFinding(op, rate, ranks, neighbours.digits());
  if (always && neighbours.LossIsFlat() && !neighbours.Learns())
    return FlatZeroFinding(op, rate, ranks);
  return PrintedZeroFinding(op, rate, ranks);
}

FindingBuilder AnewFinding(const std::string& op, const RateAnew& a) {
  FindingBuilder found = Begun(op, a.after.step, a.after.step, "restart");
  found.Title("the learning rate jumps up from its floor in one step")
      .Explain(absl::StrFormat(
          "%s was %.6g for %d points, from step %d on, and is %.6g in step %d, %.3g times as high: "
          "the schedule restarts, as after a resume without the scheduler's state.",
          op, a.floor.rate, a.floor_for, a.floor.step, a.after.rate, a.after.step,
          a.after.rate / a.floor.rate))
      .Cause("schedule-not-restored", 0.7)
      .Measured("learning rate / its floor", a.after.rate / a.floor.rate, "times")
      .Threshold(4, "in one step, from a floor of three points or more")
      .Fix(
          "Save and load the scheduler's state with the optimizer's (scheduler.state_dict()). If a "
          "second phase is intended, start it with a warm-up.")
      .Samples(a.floor_for + 1)
      .Witness("rate_before", a.floor.rate)
      .Witness("rate", a.after.rate)
      .Witness("highest", a.highest)
      .Assume("the schedule must stay at its floor");
  return found;
}

FindingBuilder RewarmedFinding(const std::string& op, const RateRewarmed& r) {
  FindingBuilder found = Begun(op, r.lowest.step, r.after.step, "restart");
  found.Title("the schedule restarts with its warm-up after a resume")
      .Explain(absl::StrFormat(
          "%s is %.6g in step %d, the first of a resume, and %.6g in step %d; it had fallen from "
          "%.6g to %.6g in step %d, from which the resume continues.",
          op, r.lowest.rate, r.lowest.step, r.after.rate, r.after.step, r.highest, r.before.rate,
          r.before.step))
      .Cause("schedule-not-restored", 0.7)
      .Measured("rate after the resume / rate before it", r.after.rate / r.before.rate, "times")
      .Threshold(1.5, "starts at half or less of the rate before the resume")
      .Fix(
          "Save and load the scheduler's state with the optimizer's (scheduler.state_dict()), or "
          "pass last_epoch. If a second phase with its own warm-up is intended, do nothing.")
      .Samples(2)
      .Witness("rate_before", r.before.rate)
      .Witness("step_before", static_cast<double>(r.before.step))
      .Witness("rate", r.after.rate)
      .Witness("lowest", r.lowest.rate)
      .Witness("highest", r.highest)
      .Assume("the resume must continue the schedule, not start a new one");
  return found;
}

FindingBuilder LeapFinding(const std::string& op, const RateLeap& l) {
  FindingBuilder found = Begun(op, l.after.step, l.after.step, "leap");
  found.Title("the learning rate is a hundred times higher in one step")
      .Explain(absl::StrFormat("%s is %.6g in step %d, %.3g times the value %.6g since step %d, "
                               "and higher than ever before.",
                               op, l.after.rate, l.after.step, l.after.rate / l.before.rate,
                               l.before.rate, l.before.step))
      .Cause("rate-leap", 0.7)
      .Measured("rate / previous rate", l.after.rate / l.before.rate, "times")
      .Threshold(100, "in one step, after ten points with the same rate")
      .Fix(
          "Find what sets the learning rate in that step: a second scheduler, a wrong unit (1 "
          "instead of 1e-4), a parameter group without its own rate.")
      .Samples(2)
      .Witness("rate_before", l.before.rate)
      .Witness("rate", l.after.rate)
      .Assume("no schedule raises a rate a hundredfold in one step");
  return found;
}

// ---- no finding ----

v1::Verdict RateRest(const RateStem& rate, uint64_t points) {
  if (points == 0) return Inconclusive("no-number: every value of the rate is NaN");
  if (points < kZeroRateSteps)
    return Inconclusive(
        absl::StrCat("few-steps: fewer than ", kZeroRateSteps, " steps contain a learning rate"));
  if (rate.at_rest > 0)
    return Pass("the rate reached its final value in the last tenth of the run");
  return Pass("the rate did not stay at zero, and was equal on all ranks");
}

// ---- ranks that do not agree ----

std::optional<FindingBuilder> OddFinding(const std::string& layer, const std::string& op,
                                         OddRate* odd) {
  const bool negative = odd->negative.Begins();
  if (!negative && !odd->nan.Begins()) return std::nullopt;
  const OddRate::Kind& kind = negative ? odd->negative : odd->nan;
  FindingBuilder found = Begun(op, kind.first, kind.last, negative ? "negative" : "nan",
                               negative ? v1::LEVEL_ERROR : v1::LEVEL_WARNING);
  found.verdict().mutable_site()->set_layer(layer);
  found.Title(negative ? "the learning rate is negative" : "the learning rate is NaN")
      .Explain(negative ? absl::StrFormat("%s is below 0 from step %d on, with a minimum of %.6g: "
                                          "each step increases the loss.",
                                          op, kind.first, odd->lowest)
                        : absl::StrFormat("%s is NaN from step %d on.", op, kind.first))
      .Cause(negative ? "negative" : "nan", 1)
      .Measured("steps", static_cast<double>(kind.steps), "steps")
      .Threshold(OddRate::kFewest, "steps")
      .Samples(kind.steps)
      .Witness("step", static_cast<double>(kind.first))
      .Fix(negative ? "Set the real length of the schedule, or a floor: a linear schedule falls "
                      "below 0 after its end."
                    : "Check the schedule: a division by 0 warm-up steps, or a logarithm.");
  return found;
}

FindingBuilder ApartFinding(int64_t step, const ApartRates& apart) {
  FindingBuilder found = Begun(apart.op, step, step, "ranks-differ");
  found.Title("ranks have different learning rates")
      .Explain(absl::StrFormat("In step %d %s is %.9g on rank %d and %.9g on rank %d.", step,
                               apart.op, apart.low, apart.low_rank, apart.high, apart.high_rank))
      .Cause("ranks-differ", 1)
      .Measured("largest minus smallest rate", apart.high - apart.low)
      .Threshold(kRatesApart * std::max(std::fabs(apart.low), std::fabs(apart.high)),
                 "a millionth of the larger one")
      .Fix(
          "Step the scheduler on every rank under the same condition, with values that were "
          "reduced over the ranks.")
      .Witness(absl::StrCat("rank ", apart.low_rank), apart.low)
      .Witness(absl::StrCat("rank ", apart.high_rank), apart.high)
      .Assume("the ranks train the same parameters, in the same groups");
  return found;
}

// ---- a schedule that runs too fast ----

FindingBuilder FasterFinding(const std::string& op, const RateFaster& f, uint32_t world_size) {
  FindingBuilder found = Begun(op, f.resumed, f.step, "faster");
  found.Title("the schedule runs an integer multiple faster than before the resume")
      .Explain(absl::StrFormat(
          "Since the resume in step %d, %s changes by %.4g per step; before, it changed by %.4g: "
          "now it is %.3f times as fast%s.",
          f.resumed, op, f.slope_after, f.slope_before, f.measured,
          world_size > 1 && world_size == f.multiple
              ? absl::StrFormat(", which is the number of processes, %d", world_size)
              : ""))
      .Cause("scheduler-stepped-oftener", world_size == f.multiple ? 0.9 : 0.6)
      .Measured("speed of the schedule / speed before the resume", f.measured, "times")
      .Threshold(2, "an integer multiple, within 2 %")
      .Fix(kCountOnce)
      .Samples(2)
      .Witness("slope_before", f.slope_before)
      .Witness("slope_after", f.slope_after)
      .Witness("multiple", static_cast<double>(f.multiple))
      .Witness("world_size", static_cast<double>(world_size))
      .Assume("the schedule was not shortened on purpose at the resume");
  return found;
}

// If a schedule was advanced once per process, it is too fast by an integer factor; returns it. If
// it is not, or the run is too short, returns 0.
uint64_t WholeMultiple(int64_t declared, int64_t seen) {
  if (seen < kFewSteps || declared < 2 * seen - 2) return 0;
  const int64_t multiple = (declared + seen / 2) / seen;
  if (multiple < 2 || std::abs(declared - multiple * seen) > multiple) return 0;
  return static_cast<uint64_t>(multiple);
}

FindingBuilder DeclaredFinding(const std::string& op, const DeclaredSchedule& s) {
  FindingBuilder found = Begun(op, s.seen, s.seen, "faster");
  found.Title(absl::StrFormat("the learning rate %s faster than declared", s.what))
      .Explain(absl::StrFormat("%s %s in %d steps; %d were declared: it is %d times as fast.", op,
                               s.what, s.seen, s.declared, s.multiple))
      .Cause("scheduler-stepped-oftener", 0.8)
      .Measured("declared steps / observed steps",
                static_cast<double>(s.declared) / static_cast<double>(s.seen), "times")
      .Threshold(2, absl::StrFormat("option %s, an integer multiple", s.option))
      .Fix(kCountOnce)
      .Samples(static_cast<uint64_t>(s.seen))
      .Witness("steps_seen", static_cast<double>(s.seen))
      .Witness("steps_declared", static_cast<double>(s.declared));
  return found;
}

}  // namespace plumbline::analysis
