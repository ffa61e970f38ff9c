// Judges how each entry was measured, from facts in the ledger.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"
#include "audit/ledger/ledger_result.h"
#include "audit/render/text_util.h"

namespace plumbline::audit {
namespace {

using analysis::FindingBuilder;

constexpr size_t kLeastPairs = 2;
constexpr size_t kMostNamed = 4;  // findings named in an explanation; the others are counted

v1::Verdict OneSeed(const LedgerResult& result, size_t i) {
  const ledger::MultiplierEstimate& m = result.estimate.multipliers[i];
  const std::string& name = result.file.ledger.multipliers[i].name;
  const ledger::Cell& cell = m.cells.back();
  const double noise =
      std::exp(m.worth.largest().gain * result.estimate.noise * std::sqrt(cell.spread()));
  const std::string what =
      cell.pairs.empty() ? "no pair of runs with the same seed" : "one pair of runs";
  return FindingBuilder(v1::LEVEL_WARNING, v1::STRENGTH_PROVED)
      .Title("the largest scale has fewer than two pairs of seeds")
      .Explain(absl::StrCat("At ", ShortNumber(cell.flops), " FLOPs ", name, " has ", what,
                            ". The noise of seeds alone is a factor of ", ShortNumber(noise),
                            " of compute there (one standard deviation), and the ledger does not "
                            "show whether it was larger."))
      .Cause("few-pairs")
      .Measured("pairs at the largest scale", static_cast<double>(cell.pairs.size()), "pairs")
      .Threshold(kLeastPairs, "two pairs show how much seeds differ")
      .Samples(cell.pairs.size())
      .Fix(absl::StrCat("Run ", name, " again at ", ShortNumber(cell.flops),
                        " FLOPs, with and without it, both with the same new seed."))
      .Take();
}

v1::Verdict SmallScale(const LedgerResult& result, size_t i) {
  const ledger::MultiplierEstimate& m = result.estimate.multipliers[i];
  const std::string& name = result.file.ledger.multipliers[i].name;
  const double largest = m.worth.largest().flops, target = result.file.ledger.target;
  return FindingBuilder(v1::LEVEL_WARNING, v1::STRENGTH_HEURISTIC)
      .Title("measured far below the scale of its use")
      .Explain(absl::StrCat("The largest scale of ", name, " is ", ShortNumber(largest),
                            " FLOPs, a factor of ", ShortNumber(target / largest),
                            " below the target of ", ShortNumber(target),
                            ". Many changes that help small models help large ones less."))
      .Cause("far-from-target")
      .Measured("largest scale", largest, "FLOPs")
      .Threshold(target / ledger::kNearTarget, "a fifth of the target")
      .Samples(m.cells.back().pairs.size())
      .Fix(absl::StrCat("Run ", name, " at ", ShortNumber(target / ledger::kNearTarget),
                        " FLOPs or more, two seeds with and without it."))
      .Take();
}

v1::Verdict NotOnStack(const std::string& name, bool has_stack) {
  return FindingBuilder(v1::LEVEL_NOTE, v1::STRENGTH_PROVED)
      .Title("not measured on top of the other changes")
      .Explain(absl::StrCat(has_stack ? "The stack has no leave-out of "
                                      : "The ledger has no run of all changes, so none of ",
                            name, has_stack ? ": what it" : " on top of the others: what it",
                            " adds to the others was never measured. If two changes have the same "
                            "effect, their product is too large."))
      .Cause(has_stack ? "no-leave-out" : "no-stack")
      .Measured("runs of the stack without it", 0, "runs")
      .Threshold(1, "at least one")
      .Fix(has_stack ? absl::StrCat("Run the stack without ", name,
                                    " and list the runs in [[stack.leave_out]].")
                     : "Run all kept changes together and list the runs in [stack]. Then leave out "
                       "one change at a time.")
      .Take();
}

// The runs of an entry that have a report, and their open findings.
struct Open {
  bool reported = false;
  size_t count = 0;
  bool error = false;
  std::string words;
};

Open OpenOf(const LedgerFile& file, const std::vector<ledger::Cell>& cells) {
  Open open;
  std::vector<size_t> runs;
  for (const ledger::Cell& cell : cells) {
    runs.insert(runs.end(), cell.with.begin(), cell.with.end());
    runs.insert(runs.end(), cell.without.begin(), cell.without.end());
  }
  for (const size_t r : runs) {
    open.reported |= file.has_report[r];
    for (const OpenFinding& finding : file.open[r]) {
      open.error |= finding.level == "error";
      if (open.count++ >= kMostNamed) continue;
      absl::StrAppend(&open.words, open.words.empty() ? "" : "; ", "run ", file.ledger.runs[r].id,
                      ": ", finding.rule, " (", finding.level, ") ", finding.title);
    }
  }
  if (open.count > kMostNamed)
    absl::StrAppend(&open.words, "; and ", open.count - kMostNamed, " more");
  return open;
}

v1::Verdict OpenFindings(const std::string& name, const Open& open) {
  if (!open.reported)
    return analysis::Inconclusive(
        "no-report: no run of this entry names the JSON report of an audit (report = \"...\")");
  if (open.count == 0)
    return analysis::Pass("none-open: the reports have no open finding on causality or precision");
  return FindingBuilder(v1::LEVEL_WARNING, v1::STRENGTH_PROVED)
      .Title("its runs have open findings on causality or precision")
      .Explain(absl::StrCat(
          "The loss of a run that sees the future, or sums wrongly, includes this error. ",
          open.words, "."))
      .Cause("open-findings")
      .Measured("open findings", static_cast<double>(open.count), "findings")
      .Threshold(0, "none of level warning or error")
      .Samples(open.count)
      .Fix(absl::StrCat("Fix the findings and run ", name,
                        " again; or suppress with a reason and audit again."))
      .Take();
}

}  // namespace

void JudgeScales(const LedgerResult& result, std::vector<v1::Verdict>* out) {
  const ledger::Ledger& ledger = result.file.ledger;
  for (size_t i = 0; i < ledger.multipliers.size(); ++i) {
    const bool few = result.estimate.multipliers[i].cells.back().pairs.size() < kLeastPairs;
    out->push_back(LedgerVerdict(
        "ledger/one-seed", ledger.multipliers[i].name,
        few ? OneSeed(result, i) : analysis::Pass("pairs: two pairs of seeds or more")));
  }
  for (size_t i = 0; i < ledger.multipliers.size(); ++i) {
    const double largest = result.estimate.multipliers[i].worth.largest().flops;
    const bool far = largest < ledger.target / ledger::kNearTarget;
    out->push_back(LedgerVerdict(
        "ledger/small-scale", ledger.multipliers[i].name,
        far ? SmallScale(result, i) : analysis::Pass("near: within a factor of 5 of the target")));
  }
}

void JudgeStack(const LedgerResult& result, std::vector<v1::Verdict>* out) {
  const ledger::Ledger& ledger = result.file.ledger;
  for (const ledger::Multiplier& m : ledger.multipliers) {
    if (!m.kept) continue;  // an entry that is not kept is in no stack
    bool left_out = false;
    if (ledger.stack) {
      for (const ledger::LeaveOut& l : ledger.stack->leave_outs) left_out |= l.name == m.name;
    }
    out->push_back(LedgerVerdict("ledger/not-on-stack", m.name,
                                 left_out ? analysis::Pass("left-out: the stack was run without it")
                                          : NotOnStack(m.name, ledger.stack.has_value())));
  }
}

void JudgeReports(const LedgerResult& result, std::vector<v1::Verdict>* out) {
  const ledger::Ledger& ledger = result.file.ledger;
  for (size_t i = 0; i < ledger.multipliers.size(); ++i) {
    const std::string& name = ledger.multipliers[i].name;
    out->push_back(LedgerVerdict(
        "ledger/open-findings", name,
        OpenFindings(name, OpenOf(result.file, result.estimate.multipliers[i].cells))));
  }
  if (!ledger.stack) return;
  const std::vector<ledger::Cell> cells = ledger::CellsOf(ledger.runs, ledger.stack->arms);
  out->push_back(LedgerVerdict("ledger/open-findings", "stack",
                               OpenFindings("the stack", OpenOf(result.file, cells))));
}

}  // namespace plumbline::audit
