#include "analysis/processes/hang_verdict.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/picture/picture.h"
#include "analysis/processes/host_command.h"

namespace plumbline::analysis {
namespace {

// A server checks twice a second, so shorter pauses are observed only by chance.
constexpr uint64_t kShortPause = 500'000'000;

double Seconds(uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

// Returns "rank 3" or "ranks 3, 5 and 12 more".
template <typename List>
std::string Ranks(const List& ranks, bool begins_sentence = false) {
  constexpr int kShown = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  if (begins_sentence) text[0] = 'R';
  for (int i = 0; i < ranks.size() && i < kShown; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", ranks.Get(i));
  }
  if (ranks.size() > kShown) absl::StrAppend(&text, " and ", ranks.size() - kShown, " more");
  return text;
}

// Returns one line: the ranks and their state.
std::string TitleOf(const v1::RanksHung& h) {
  switch (h.cause()) {
    case v1::RanksHung::CAUSE_GONE:
      return Ranks(h.ranks()) + " ended without a message, and the others wait";
    case v1::RanksHung::CAUSE_UNREACHABLE:
      return Ranks(h.ranks()) + " can no longer be reached, and the others wait";
    default:
      break;
  }
  if (h.ranks().empty()) return absl::StrCat("no rank continues after step ", h.step());
  return absl::StrCat(Ranks(h.ranks()), h.ranks_size() == 1 ? " hangs" : " hang", " in step ",
                      h.step());
}

// True if too few steps were seen to know their duration.
bool WithoutPace(const v1::RanksHung& h) { return h.step_ns() == 0; }

// Returns what is known about the usual duration: "where a step takes 0.5 s and the longest pause
// before took 12 s".
std::string Usual(const v1::RanksHung& h) {
  std::string text = WithoutPace(h)
                         ? "and too few steps were observed to know how long one takes"
                         : absl::StrFormat("and a step takes %.3g s", Seconds(h.step_ns()));
  if (h.longest_ns() >= kShortPause)
    absl::StrAppendFormat(&text, " and the longest pause before took %.3g s",
                          Seconds(h.longest_ns()));
  return text;
}

// Returns how long the hang lasts and how long steps usually take. Then it lists the ranks that
// ended, or the ranks that wait and the ranks that they wait for.
std::string Explanation(const v1::RanksHung& h) {
  const bool one = h.ranks_size() == 1;
  std::string text = absl::StrFormat("Heartbeats arrive, but no step ended for %.1f s, %s.",
                                     Seconds(h.still_ns()), Usual(h));
  if (h.cause() == v1::RanksHung::CAUSE_GONE) {
    absl::StrAppend(
        &text, " ", Ranks(h.ranks(), true),
        one ? " closed its connection while its heartbeats arrived: its process ended."
            : " closed their connections while their heartbeats arrived: their processes ended.");
  } else if (h.cause() == v1::RanksHung::CAUSE_UNREACHABLE) {
    absl::StrAppend(
        &text, " ", Ranks(h.ranks(), true),
        one ? " sends no heartbeats: its process was stopped, or its host or network is lost."
            : " send no heartbeats: their processes were stopped, or their hosts or networks are "
              "lost.");
  } else if (!h.ranks().empty() && !h.waiting().empty()) {
    absl::StrAppend(&text, " ", Ranks(h.waiting(), true), " got further and ",
                    h.waiting_size() == 1 ? "waits." : "wait.");
  } else if (h.ranks().empty()) {
    absl::StrAppend(&text,
                    " All are in the same step, so steps do not show which rank blocks them.");
  }
  return text;
}

const char* FixOf(const v1::RanksHung& h) {
  switch (h.cause()) {
    case v1::RanksHung::CAUSE_GONE:
      return "Find out why the process ended (its exit status, the kernel's log: out of memory), "
             "and restart the job: the other ranks wait forever.";
    case v1::RanksHung::CAUSE_UNREACHABLE:
      return "Check whether the process is stopped (state T in ps: a signal, a debugger), and "
             "check its host and its network. Restart the job without it.";
    default:
      return "Look at the stacks of the named ranks (py-spy dump, gdb) and, with NCCL, the flight "
             "recorder. If a long stage is intended, declare it with run.span(\"checkpoint\"), "
             "\"evaluation\" or \"compile\".";
  }
}

const char* CauseId(const v1::RanksHung& h) {
  switch (h.cause()) {
    case v1::RanksHung::CAUSE_GONE:
      return "process-gone";
    case v1::RanksHung::CAUSE_UNREACHABLE:
      return "network-lost";
    default:
      return "stuck";
  }
}

// Draws the waits: ranks that have reached a later step wait for those that have not.
void DrawWaits(const v1::RanksHung& h, v1::Finding& finding) {
  constexpr int kMostOfNode = 64;  // per node, by number
  google::protobuf::Struct& waits = PutStruct(*finding.mutable_witness(), "waits");
  auto& nodes = *(*waits.mutable_fields())["nodes"].mutable_list_value();
  const auto add = [&](const auto& ranks, const std::string& at, bool culprit) {
    google::protobuf::Struct& node = *nodes.add_values()->mutable_struct_value();
    std::vector<double> named(ranks.begin(), ranks.begin() + std::min(ranks.size(), kMostOfNode));
    Put(node, "count", ranks.size());
    Put(node, "at", at);
    PutFlag(node, "culprit", culprit);
    PutNumbers(node, "ranks", named);
  };
  add(h.waiting(), "got further, and wait", false);
  add(h.ranks(), absl::StrCat(CauseId(h), " in step ", h.step()), true);
  PutNumbers(waits, "from", {0});
  PutNumbers(waits, "to", {1});
}

// If a culprit and ranks that wait for it are known, returns an error at once. If the usual
// duration of a step is not known, the level is one lower at most.
v1::Level LevelOf(const v1::RanksHung& h, bool named) {
  if (WithoutPace(h)) return named ? v1::LEVEL_WARNING : v1::LEVEL_NOTE;
  return named || h.still_ns() >= h.error_ns() ? v1::LEVEL_ERROR : v1::LEVEL_WARNING;
}

}  // namespace

v1::Verdict HangVerdict(const v1::RanksHung& h) {
  FindingBuilder found;
  v1::FindingSite& site = *found.verdict().mutable_site();
  site.set_op("step");
  site.set_step_first(h.step());
  site.set_step_last(h.step());
  *site.mutable_ranks() = h.ranks().empty() ? h.waiting() : h.ranks();
  const bool named = !h.ranks().empty() && !h.waiting().empty();
  found.Level(LevelOf(h, named))
      .Strength(v1::STRENGTH_BOUNDED)
      .Title(TitleOf(h))
      .Explain(Explanation(h))
      .Fix(FixOf(h))
      .Cause(CauseId(h), 1)
      .Measured("time without a step", Seconds(h.still_ns()), "s")
      .Threshold(Seconds(h.threshold_ns()),
                 WithoutPace(h)
                     ? "30 times liveness.hang_seconds, because the length of a step is not known"
                     : "the longest of liveness.hang_seconds, 5 median steps and twice the longest "
                       "pause before");
  found.verdict().add_assumptions("no undeclared stage takes this long");
  google::protobuf::Struct& details = *found.verdict().mutable_details();
  const auto list = [&](const char* key, const auto& ranks) {
    auto& values = *(*details.mutable_fields())[key].mutable_list_value();
    for (const uint32_t rank : ranks) values.add_values()->set_number_value(rank);
  };
  list("ranks", h.ranks());
  list("waiting", h.waiting());
  if (named) DrawWaits(h, found.finding());
  Put(details, "kind", named ? "not-launched" : "not-completed");
  const std::string stack = StackCommand(h.host(), h.pid());
  if (h.cause() == v1::RanksHung::CAUSE_STUCK && !stack.empty()) Put(details, "command", stack);
  return found.Take();
}

}  // namespace plumbline::analysis
