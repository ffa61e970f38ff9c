// The verdict of health/run-died: which process ended first, how, and which ones followed.
#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/frame/frame.h"
#include "analysis/processes/end_counts.h"
#include "analysis/processes/process_end.h"

namespace plumbline::analysis {
namespace {

constexpr size_t kTitle = 70;

std::string RankName(const ProcessEnd& end) {
  return absl::StrCat(end.role == v1::ROLE_ROLLOUT ? "rollout " : "", "rank ", end.rank);
}

std::string Plural(uint64_t n, const char* one, const char* many) {
  return absl::StrCat(n, " ", n == 1 ? one : many);
}

std::string SignalName(const v1::Ending& e) {
  return e.type().empty() ? absl::StrCat("signal ", e.code()) : e.type();
}

// Returns how the process ended, as part of a title: "ValueError".
std::string Brief(const ProcessEnd& end) {
  const v1::Ending& e = end.stated;
  switch (e.how()) {
    case v1::Ending::HOW_SIGNAL:
      return SignalName(e);
    case v1::Ending::HOW_INTERRUPTED:
      return "interrupted by hand";
    case v1::Ending::HOW_EXIT:
      return e.type().empty() ? absl::StrCat("exit status ", e.code()) : e.type();
    case v1::Ending::HOW_EXCEPTION:
    case v1::Ending::HOW_UNWINDING:
      return e.type().empty() ? "an exception" : e.type();
    default:
      return "an exception in a thread";
  }
}

std::string Whole(const v1::Ending& e) {
  std::string text = e.type().empty() ? "an exception" : e.type();
  std::string stated = e.text();
  while (!stated.empty() && (stated.back() == '.' || stated.back() == '\n')) stated.pop_back();
  if (!stated.empty()) absl::StrAppend(&text, ": ", stated);
  if (!e.where().empty()) absl::StrAppend(&text, ", at ", e.where());
  return text;
}

std::string HowItEnded(const ProcessEnd& end, bool reported) {
  const v1::Ending& e = end.stated;
  if (end.way == EndKind::kGone) {
    return reported
               ? "ended without a message: its connection broke, and it did not reconnect"
               : "ended without a message: its record stops early, but other processes continued "
                 "or ended normally";
  }
  switch (e.how()) {
    case v1::Ending::HOW_EXCEPTION:
      return absl::StrCat("ended by an uncaught exception: ", Whole(e));
    case v1::Ending::HOW_EXIT:
      return absl::StrCat("ended with exit status ", e.code(),
                          e.type().empty() ? "" : absl::StrCat(" while it handled ", Whole(e)));
    case v1::Ending::HOW_SIGNAL:
      return absl::StrCat("was ended by ", SignalName(e));
    case v1::Ending::HOW_INTERRUPTED:
      return "was interrupted by hand";
    case v1::Ending::HOW_UNWINDING:
      return absl::StrCat("closed the run while an exception was being raised: ", Whole(e));
    default:
      return absl::StrCat("ended normally, but one of its threads had ended by ", e.thread());
  }
}

// The newest known value of a process: the state of training when it ended.
struct LastValue {
  std::string series;
  int64_t step = ProcessEnd::kNever;
  double value = 0;
};

LastValue LastOf(const ProcessEnd& end) {
  LastValue last{end.series, end.value_step, end.value};
  // The trainer's ending report may be newer than what it could deliver.
  for (const v1::Ending::Last& stated : end.stated.last()) {
    const bool same = stated.series() == last.series;
    if (last.series.empty() || (same && stated.step() > last.step))
      last = {stated.series(), stated.step(), stated.value()};
  }
  return last;
}

std::string ValueText(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.6g", value)
         : std::isnan(value)  ? "nan"
         : value > 0          ? "inf"
                              : "-inf";
}

int64_t StepOf(const ProcessEnd& end) { return std::max<int64_t>(end.newest_step, 0); }

// Returns the first sentence of an exception's text, without its full stop: "CUDA out of memory".
std::string FirstClause(const std::string& text) {
  std::string clause = text.substr(0, std::min(text.find('\n'), text.find(". ")));
  while (!clause.empty() && (clause.back() == '.' || clause.back() == ' ')) clause.pop_back();
  return clause;
}

// A table row and an alert have limited space, so the text is cut at a character boundary.
std::string Title(const ProcessEnd& first, bool together, uint64_t all) {
  if (together) return absl::StrCat("all ", all, " ranks ended without a message");
  std::string title;
  if (first.way == EndKind::kGone) {
    title = absl::StrCat(RankName(first), " ended without a message");
  } else if (first.stated.how() == v1::Ending::HOW_UNSPECIFIED) {
    title = absl::StrCat("a thread of ", RankName(first), " ended by an exception");
  } else {
    title = absl::StrCat(RankName(first), " ended: ", Brief(first));
    const std::string message = FirstClause(first.stated.text());
    if (!message.empty() && title.size() + message.size() + 2 <= kTitle)
      absl::StrAppend(&title, ": ", message);
    const std::string at = absl::StrCat(" at ", first.stated.where());
    if (!first.stated.where().empty() && title.size() + at.size() <= kTitle) title += at;
  }
  if (title.size() <= kTitle) return title;
  size_t end = kTitle - 3;
  while (end > 0 && (static_cast<unsigned char>(title[end]) & 0xC0) == 0x80) --end;
  return title.substr(0, end) + "...";
}

std::string Followers(const EndCounts& tally, const ProcessEnd& first) {
  static constexpr const char* kWords[kKinds] = {
      "by errors of their own", "without a message", "because communication failed",
      "because they received a request to end", "normally, except for one thread"};
  std::array<uint64_t, kKinds> bad = tally.bad;
  --bad[KindOf(first)];
  const uint64_t all = tally.all_bad() - 1;
  std::string text;
  if (all > 0) {
    std::string how;
    for (int kind = 0; kind < kKinds; ++kind) {
      if (bad[static_cast<size_t>(kind)] == 0) continue;
      absl::StrAppend(&how, how.empty() ? "" : ", ", bad[static_cast<size_t>(kind)], " ",
                      kWords[kind]);
    }
    text = absl::StrCat(" ", Plural(all, "other rank", "other ranks"), " followed (", how, ").");
  }
  if (tally.well > 0)
    absl::StrAppend(&text, " ", Plural(tally.well, "rank", "ranks"), " ended normally.");
  if (tally.open > 0)
    absl::StrAppend(&text, " Of ", Plural(tally.open, "rank", "ranks"), " the end is not known.");
  if (tally.unreachable > 0)
    absl::StrAppend(&text, " ", Plural(tally.unreachable, "rank", "ranks"),
                    " cannot be reached and may be alive.");
  return text;
}

std::string Explanation(const RunEnds& run, const EndCounts& tally, const ProcessEnd& first,
                        bool together) {
  std::string text;
  if (together) {
    text = absl::StrCat("All ", run.ends.size(),
                        " processes ended without a message (SIGKILL, a fault, or out of memory); "
                        "the first one that stopped was ",
                        RankName(first));
  } else {
    text = Capitalised(RankName(first));
    if (!first.host.empty()) absl::StrAppend(&text, " (", first.host, ")");
  }
  if (first.newest_step != ProcessEnd::kNever)
    absl::StrAppend(&text, ", in step ", first.newest_step, together ? "" : ",");
  if (!together) absl::StrAppend(&text, " ", HowItEnded(first, run.reported));
  absl::StrAppend(&text, ".");
  if (const LastValue last = LastOf(first); !last.series.empty())
    absl::StrAppend(&text, " Its last ", last.series, " was ", ValueText(last.value), " (step ",
                    last.step, ").");
  if (!first.stated.thread().empty() && first.stated.how() != v1::Ending::HOW_UNSPECIFIED)
    absl::StrAppend(&text, " One of its threads had ended by ", first.stated.thread(), ".");
  absl::StrAppend(&text, together ? "" : Followers(tally, first));
  if (run.superseded) absl::StrAppend(&text, " A later attempt continues.");
  return text;
}

void PutDetails(const RunEnds& run, const EndCounts& tally, const ProcessEnd& first,
                const char* kind, google::protobuf::Struct& details) {
  Put(details, "kind", kind);
  Put(details, "rank", static_cast<double>(first.rank));
  for (const auto& [key, text] : {std::pair<const char*, const std::string&>{"host", first.host},
                                  {"type", first.stated.type()},
                                  {"where", first.stated.where()}}) {
    if (!text.empty()) Put(details, key, text);
  }
  if (first.stated.code() != 0) Put(details, "code", static_cast<double>(first.stated.code()));
  Put(details, "attempt", static_cast<double>(run.attempt));
  if (first.newest_step != ProcessEnd::kNever)
    Put(details, "last_step", static_cast<double>(first.newest_step));
  Put(details, "followed", static_cast<double>(tally.all_bad() - 1));
  Put(details, "well", static_cast<double>(tally.well));
  Put(details, "unknown", static_cast<double>(tally.open + tally.unreachable));
  PutFlag(details, "restarted", run.superseded);
  const LastValue last = LastOf(first);
  if (last.series.empty()) return;
  google::protobuf::Struct& scalar = PutStruct(details, "last_scalar");
  Put(scalar, "series", last.series);
  Put(scalar, "step", static_cast<double>(last.step));
  if (std::isfinite(last.value)) {
    Put(scalar, "value", last.value);
  } else {
    Put(scalar, "value", ValueText(last.value));
  }
}

v1::Verdict FindingOf(const RunEnds& run, const EndCounts& tally) {
  const ProcessEnd& first = *FirstOf(tally.first);
  const uint64_t all = run.ends.size();
  const bool together = all > 1 && tally.bad[kGoneKind] == all;
  const bool alone = tally.bad[kGoneKind] + tally.bad[kFollower] + tally.bad[kOwn] <= 1;
  const Cause cause = CauseOf(first, together, alone);
  FindingBuilder found;
  SetPlace(found.verdict(), "", "process", StepOf(first), StepOf(first), std::array{first.rank});
  found.Level(cause.level);
  const bool whole = run.over || tally.open + tally.unreachable == 0;
  found.Strength(whole ? v1::STRENGTH_PROVED : v1::STRENGTH_BOUNDED);
  if (!whole)
    found.verdict().add_assumptions(
        "the process that ended first is among those whose end is known");
  found.Title(Title(first, together, all))
      .Explain(Explanation(run, tally, first, together))
      .Fix(cause.fix)
      .Cause(cause.id, 1)
      .Measured("last step", static_cast<double>(StepOf(first)), "step");
  found.Threshold(0, "a process that ends normally reports its end").Samples(all);
  PutDetails(run, tally, first, cause.id, *found.verdict().mutable_details());
  found.Witness("process", absl::StrCat(RankName(first), " on ", first.host))
      .Witness("end", first.way == EndKind::kGone ? "no message"
                      : first.stated.where().empty()
                          ? Brief(first)
                          : absl::StrCat(Brief(first), " at ", first.stated.where()));
  return found.Take();
}

}  // namespace

std::optional<v1::Verdict> DiedVerdict(const RunEnds& given) {
  if (given.ends.empty()) return std::nullopt;
  RunEnds run = given;
  ConcludeEnds(&run);
  const EndCounts tally = CountEnds(run);
  if (tally.all_bad() > 0) return FindingOf(run, tally);
  v1::Verdict verdict;
  if (tally.unreachable > 0) {
    verdict = Inconclusive(
        absl::StrCat("unreachable: ", Plural(tally.unreachable, "process", "processes"),
                     " could not be reached any more; it is not known whether they ended"));
  } else if (tally.open > 0) {
    if (run.reported || run.superseded) return std::nullopt;
    verdict = Inconclusive(absl::StrCat(
        "unfinished: ", Plural(tally.open, "record breaks", "records break"),
        " without a report of the end, and no evidence shows whether the run continued"));
  } else {
    verdict = Pass("every process reported its end");
  }
  int64_t last = 0;
  for (const ProcessEnd& end : run.ends) last = std::max(last, end.newest_step);
  SetPlace(verdict, "", "process", last, last, std::array<uint32_t, 0>{});
  return verdict;
}

}  // namespace plumbline::analysis
