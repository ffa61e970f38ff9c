#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/flight/flight.h"
#include "analysis/frame/frame.h"
#include "analysis/picture/picture.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr char kPage[] = R"page(
# performance/hang

Some ranks are blocked, and the others wait for them.

**Why.** One rank that does not launch a collective holds all others until the communication library's time limit, 10 minutes with PyTorch's NCCL
backend: 4,096 GPUs that wait so long cost 683 GPU hours, and their utilisation reads 100 % meanwhile.

**Bad.** Ranks 0, 1 and 3 are in step 20 and rank 2 is in step 19, for 12 s where a step takes .5 s. Of dumps: `rank 5 has not launched all_reduce
1,204 of group default_pg; 7 ranks wait for it`.

**Good.** A checkpoint of two minutes inside `run.span("checkpoint")`; the first three steps of a process, whatever they compile; a pause 1.5 times as
long as an earlier one after which the run continued.

**How to fix it.** `not-launched`: that rank's stack (`py-spy dump`), its log, its host. `not-completed`: its GPU and its links. `mismatched`: look
for code that runs on some ranks only; set `TORCH_DISTRIBUTED_DEBUG=DETAIL`. `stuck`: take the stacks of the named ranks (`py-spy dump`, `gdb`), and
the flight recorder with NCCL. `process-gone`: the exit status and the kernel's log (out of memory); the others wait forever, so restart.
`network-lost`: the host and its network. A stage that is long on purpose: declare it with `run.span("checkpoint")`, `"evaluation"` or `"compile"`.

**What it checks.** Every agent sends a heartbeat each half second from a thread of its own, which states how long its trainer has been in the same
step, or that it is between two steps and within no span: a notebook between two cells, a loop that has ended, a pause of the user. If all are in this
state, no rank hangs. If others are in a later step, such a rank is treated like any other. `plumbd` takes the processes of a run, an attempt and a
role together: when all of them have made no progress for longer than 10 s (`liveness.hang_seconds`), 5 median steps and twice the longest pause that
the run came back from, it names those that are in the earliest step; in one step, where some are within a collective (its span is open:
`run.span("collective")`, or the wait for the last gradients of DistributedDataParallel on the CPU) and others are not, those that are not. A rank
whose connection broke is named instead: `process-gone` if its heartbeats arrived until then; `network-lost` for one that sent nothing before that, or
is still connected but has sent nothing since before the others stopped: a stopped process (`SIGSTOP`, a debugger) looks so, too. It is an `error` if
a rank can be named. If all are in one step it is a `warning`, and an `error` after 30 times as long. If a loop stopped before five observations, half
a second apart, saw progress, the length of its steps is not known: it is reported after 30 times `hang_seconds` (five minutes), as a `warning` if a
rank can be named, else as a `note`. The incident closes when the blocked ranks continue or report their end, or when all waiting ranks have ended
normally.

*Of flight-recorder dumps* (offline): a rank's head is its oldest pending operation. It waits for each member of the group that has not launched it,
or holds it pending after an older one; a send or receive waits for the peer named in it, unless that peer's head is the counterpart. `mismatched`:
the ranks in the minority by operation, dtype or shape (as the library compares them: counts of elements where they must agree, never how a tensor is
viewed; bytes where an all-gather or broadcast only moves them; a tie names all), those that began two operations in another order than most, and
those of which each sends to the next and none receives. `not-launched`: ranks that others wait for and that hold nothing pending; ranks without a
dump only where no rank with one is such. `not-completed`: ranks whose oldest pending all-reduce, all-gather, reduce-scatter, all-to-all or barrier of
a group a peer has completed. `not-started`: fewer than half of the ranks, whose recorders have the operation as `scheduled` while it is `started` on
the others: what runs before it on their devices holds them. Else all at one operation: a `note` that names no rank. A graph over *any* pending
collective names false ranks in 4 of 10 simulated hangs, because ranks run ahead by different depths; this one in none of 480.

*Of NCCL calls* that `plumb run` counted in a compiled trainer: if a signal ended the job while ranks had made different numbers of calls on one
communicator, the counts are judged as dumps; a call that not all ranks made is pending.

**Inconclusive when** all that is pending in any dump was launched less than 30 s before the files were written (by the files' own time): they were
requested from a job that may continue, and dumps of two moments look like waiting ranks. When dumps prove to be of different times (one member
completed what another had not launched), no rank waits, more of the awaited ranks have no dump than there are dumps, or the dumps explain nothing.

**What it cannot see.** Which rank blocks the others if all are in the same step, and no span shows which ranks are within a collective. Hangs of a
run with a process that sends nothing. Processes that all stop between two steps, within no span (`health/hang-between-steps` reports those); or,
where the step has stages (`run.watch`, spans of forward and backward), between two of them; one alone within a forward pass. Records have no
heartbeats, so an offline audit of them gives no verdict of this rule; an audit of a stored run (`plumb audit --server`) repeats the earlier findings.
Of dumps: what the recorder had overwritten (raise `TORCH_NCCL_TRACE_BUFFER_SIZE`), and whether the job was blocked at all if files were copied
without their times (`cp -p`, `rsync -a` keep them): that dumps are written on a time-out is an assumption.

**Cost.** A heartbeat of some 40 bytes each half second when there is nothing else to send.

**Strength.** `bounded`: it is measured that no rank continues; it is an assumption, stated in the finding, that no stage takes this long.
)page";

constexpr RuleInfo kInfo = {"performance/hang",
                            "some ranks are blocked, and the others wait",
                            v1::LEVEL_ERROR,
                            "0.1.0",
                            kPage,
                            {}};

using flight::Frozen;

constexpr size_t kMostRanksDrawn = 64;  // limit of ranks per node of the graph

std::string ListRanks(const std::vector<uint32_t>& ranks) {
  constexpr size_t kMostNamed = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size() && i < kMostNamed; ++i)
    absl::StrAppend(&text, i == 0 ? "" : ", ", ranks[i]);
  if (ranks.size() > kMostNamed)
    absl::StrAppend(&text, " and ", ranks.size() - kMostNamed, " more");
  return text;
}

std::string OpWords(const flight::Op& op) {
  std::string text = op.kind;
  if (!op.point_to_point) absl::StrAppend(&text, " ", op.sequence);
  absl::StrAppend(&text, " of group ", op.group.empty() ? "(default)" : op.group);
  if (!op.where.empty()) absl::StrAppend(&text, " (", op.where, ")");
  return text;
}

struct Reported {
  const char* kind;
  const char* title;
  const char* fix;
};

Reported WordsOf(const Frozen& frozen) {
  switch (frozen.kind) {
    case Frozen::Kind::kMismatched:
      if (frozen.what == "order") {
        return {"mismatched", "ranks call collectives in different orders, and all are blocked",
                "Find code that uses two groups in a different order on these ranks, or from two "
                "threads."};
      }
      if (frozen.what == "direction") {
        return {"mismatched", "ranks send to each other, and no rank receives",
                "Check the pipeline's schedule: one of two neighbours must send first and the "
                "other receive first, or both in one batch (batch_isend_irecv)."};
      }
      return {"mismatched", "ranks call a collective with different arguments, and all are blocked",
              "Find code that runs on these ranks only. TORCH_DISTRIBUTED_DEBUG=DETAIL checks "
              "every call before it is made."};
    case Frozen::Kind::kNotLaunched:
      return {"not-launched", "ranks have not launched the collective that the others wait for",
              "Look at the stacks of the named ranks (py-spy dump, gdb), their logs and their "
              "hosts. The other ranks only wait."};
    case Frozen::Kind::kNotStarted:
      return {"not-started", "GPUs of some ranks have not started the collective of the others",
              "Find the work that blocks the named ranks' GPUs (py-spy dump, a kernel that does "
              "not end, a copy that waits, nvidia-smi)."};
    case Frozen::Kind::kNotCompleted:
      return {"not-completed", "ranks have not completed an operation that their peers completed",
              "Check the GPUs and links of the named ranks (nvidia-smi, dmesg: XID, link errors)."};
    default:
      return {"not-completed", "all ranks are blocked in one collective",
              "Check the network and its counters: every rank has joined the collective, and none "
              "completes it."};
  }
}

std::string Explain(const Frozen& frozen) {
  const std::string ranks = Capitalised(ListRanks(frozen.ranks));
  const std::string op = OpWords(frozen.op);
  const std::string waiting = absl::StrCat(
      " ", frozen.waiting.size(), frozen.waiting.size() == 1 ? " rank waits." : " ranks wait.");
  const bool one = frozen.ranks.size() == 1;
  switch (frozen.kind) {
    case Frozen::Kind::kMismatched:
      if (frozen.tie) {
        return absl::StrCat(frozen.what == "direction" ? "A cycle of waits at " : "At ", op,
                            " the ranks differ in ", frozen.what, ": ", frozen.majority, " or ",
                            frozen.minority,
                            ", with equally many ranks each; which side is wrong is not known.");
      }
      return absl::StrCat("At ", op, " the ranks differ in ", frozen.what, ": ", frozen.minority,
                          " on ", ListRanks(frozen.ranks), ", ", frozen.majority, " on most.",
                          waiting);
    case Frozen::Kind::kNotLaunched: {
      std::string text = absl::StrCat(ranks, one ? " has" : " have", " not launched ", op, ", and ",
                                      one ? "holds" : "hold", " nothing pending.", waiting);
      if (frozen.ranks == frozen.without_dump) {
        text = absl::StrCat(ranks, one ? " has" : " have",
                            " no readable dump, and the others wait for ", one ? "it" : "them",
                            " at ", op, ".", waiting);
      } else if (!frozen.without_dump.empty()) {
        absl::StrAppend(&text, " There is no readable dump of ", ListRanks(frozen.without_dump),
                        ".");
      }
      return text;
    }
    case Frozen::Kind::kNotStarted:
      return absl::StrCat(ranks, one ? " has" : " have", " launched ", op, ", and ",
                          one ? "its device has" : "their devices have",
                          " not started it (scheduled); the others have.", waiting);
    case Frozen::Kind::kNotCompleted:
      return absl::StrCat(ranks, one ? " has" : " have", " not completed ", op,
                          ", which a peer has completed.", waiting);
    default:
      return absl::StrCat("All ", frozen.waiting.size(), " ranks wait in ", op, ".");
  }
}

void PutRankList(google::protobuf::Struct& details, const char* key,
                 const std::vector<uint32_t>& ranks) {
  auto& values = *(*details.mutable_fields())[key].mutable_list_value();
  for (const uint32_t rank : ranks) values.add_values()->set_number_value(rank);
}

// The graph of waits. Ranks blocked in one operation form a node, and the ranks that the finding
// names form another. An edge leads from a waiting node to the node it waits for. The graph has at
// most kMostNodes nodes; the smallest are omitted.
constexpr size_t kMostNodes = 12;

struct Waiting {
  const flight::Op* op;
  std::vector<uint32_t> ranks;
};

std::vector<Waiting> Standing(const flight::Job& job, const Frozen& frozen) {
  std::map<std::string, Waiting> by_op;
  for (const uint32_t rank : frozen.waiting) {
    const auto record = job.ranks.find(rank);
    const flight::Op* head = record == job.ranks.end() ? nullptr : record->second.head();
    if (head == nullptr) continue;
    Waiting& node = by_op[absl::StrCat(head->group, "\n", head->kind, "\n", head->sequence)];
    node.op = head;
    node.ranks.push_back(rank);
  }
  std::vector<Waiting> nodes;
  for (auto& [key, node] : by_op) nodes.push_back(std::move(node));
  std::stable_sort(nodes.begin(), nodes.end(), [](const Waiting& a, const Waiting& b) {
    return a.ranks.size() > b.ranks.size();
  });
  if (nodes.size() > kMostNodes) nodes.resize(kMostNodes);
  return nodes;
}

// Returns the ranks that a node's operation waits for: members that have not launched it; for point
// to point, the peer.
std::set<uint32_t> Awaited(const flight::Job& job, const flight::Op& op) {
  if (op.point_to_point) {
    return op.peer < 0 ? std::set<uint32_t>{} : std::set<uint32_t>{static_cast<uint32_t>(op.peer)};
  }
  std::set<uint32_t> out;
  const auto members = job.members.find(op.group);
  if (members == job.members.end()) return out;
  for (const uint32_t rank : members->second) {
    const auto record = job.ranks.find(rank);
    if (record == job.ranks.end() || !record->second.Launched(op.group, op.sequence))
      out.insert(rank);
  }
  return out;
}

void AddNode(google::protobuf::Struct& waits, const std::vector<uint32_t>& ranks,
             const std::string& at, bool culprit) {
  auto& list = *(*waits.mutable_fields())["nodes"].mutable_list_value();
  google::protobuf::Struct& node = *list.add_values()->mutable_struct_value();
  std::vector<double> named;
  for (size_t i = 0; i < ranks.size() && i < kMostRanksDrawn; ++i) named.push_back(ranks[i]);
  Put(node, "count", static_cast<double>(ranks.size()));
  Put(node, "at", at);
  PutFlag(node, "culprit", culprit);
  PutNumbers(node, "ranks", named);
}

void DrawWaits(const flight::Job& job, const Frozen& frozen, v1::Finding& finding) {
  google::protobuf::Struct& waits = PutStruct(*finding.mutable_witness(), "waits");
  const std::vector<Waiting> nodes = Standing(job, frozen);
  for (const Waiting& node : nodes)
    AddNode(waits, node.ranks, absl::StrCat("at ", OpWords(*node.op)), false);
  std::vector<double> from, to;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const std::set<uint32_t> awaited = Awaited(job, *nodes[i].op);
    const auto any = [&](const std::vector<uint32_t>& ranks) {
      return std::any_of(ranks.begin(), ranks.end(),
                         [&](uint32_t rank) { return awaited.contains(rank); });
    };
    const auto edge = [&](size_t end) {
      from.push_back(static_cast<double>(i));
      to.push_back(static_cast<double>(end));
    };
    // The node of the ranks that the finding names has the last number.
    if (!frozen.ranks.empty() && (awaited.empty() || any(frozen.ranks))) edge(nodes.size());
    for (size_t other = 0; other < nodes.size(); ++other) {
      if (other != i && any(nodes[other].ranks)) edge(other);
    }
  }
  if (!frozen.ranks.empty()) {
    const bool unseen = frozen.ranks == frozen.without_dump;
    AddNode(
        waits, frozen.ranks,
        absl::StrCat(unseen ? "no dump; the others wait for it at " : "the others wait for it at ",
                     OpWords(frozen.op)),
        true);
  }
  PutNumbers(waits, "from", from);
  PutNumbers(waits, "to", to);
}

// Returns why a dump is invalid. If it is valid, returns "".
std::string WrongDump(const v1::FlightRecorder& recorder) {
  for (const auto& op : recorder.operations()) {
    if (op.group() >= static_cast<uint32_t>(recorder.groups_size()))
      return "an operation without a group";
    if (op.sequence() > INT64_MAX) return "a sequence number that is too large";
  }
  return "";
}

// Returns the verdict on the dumps of a job.
v1::Verdict OfDumps(const flight::Job& job, const Frozen& frozen) {
  const size_t dumps = job.ranks.size();
  if (frozen.kind == Frozen::Kind::kNothingPending)
    return Pass(absl::StrFormat("no operation is pending in %d dumps", dumps));
  if (frozen.kind == Frozen::Kind::kDifferentTimes) {
    return Inconclusive(
        absl::StrFormat("different-times: rank %d completed %s, but rank %d had not launched it "
                        "when it wrote its dump",
                        frozen.ranks[0], OpWords(frozen.op), frozen.ranks[1]));
  }
  if (frozen.kind == Frozen::Kind::kNoneWaits) {
    return Inconclusive(absl::StrCat(
        "none-waits: ", ListRanks(frozen.ranks), " had not completed ", OpWords(frozen.op),
        " when the dump was written, and no rank waits; dumps of different times have this form"));
  }
  if (frozen.kind == Frozen::Kind::kFewDumps) {
    return Inconclusive(absl::StrCat("few-dumps: the ", dumps, " ranks with a dump wait at ",
                                     OpWords(frozen.op), " for ", ListRanks(frozen.ranks),
                                     ", which have no readable dump"));
  }
  if (frozen.kind == Frozen::Kind::kUnexplained) {
    return Inconclusive(absl::StrCat("unexplained: ", frozen.waiting.size(),
                                     " ranks have operations pending, and each waits for another "
                                     "that has, too"));
  }
  const bool named = frozen.kind != Frozen::Kind::kAllAtOne;
  const bool unseen = named && frozen.ranks == frozen.without_dump;
  const Reported words = WordsOf(frozen);
  FindingBuilder found(named ? v1::LEVEL_ERROR : v1::LEVEL_NOTE, v1::STRENGTH_BOUNDED);
  found.Title(words.title)
      .Explain(Explain(frozen))
      .Cause(named ? words.kind : "all-at-one", frozen.tie || unseen ? 0.5 : 0.9)
      .Measured("ranks with operations pending", static_cast<double>(frozen.waiting.size()),
                "ranks")
      .Threshold(0, "a running job has none")
      .Samples(dumps)
      .Assume("the dumps were written at the time limit of the collective")
      .Witness("group", frozen.op.group)
      .Witness("operation", frozen.op.kind)
      .Witness("sequence", static_cast<double>(frozen.op.sequence))
      .Fix(words.fix);
  DrawWaits(job, frozen, found.finding());
  google::protobuf::Struct& details = *found.verdict().mutable_details();
  PutRankList(details, "ranks", frozen.ranks);
  PutRankList(details, "waiting", frozen.waiting);
  Put(details, "kind", words.kind);
  return found.Take();
}

// Returns inconclusive, because the pending operations were launched shortly before the dumps were
// written. A running job always has pending operations, and dumps from different moments look like
// ranks that wait.
v1::Verdict MayGoOn(const Frozen& frozen) {
  return Inconclusive(absl::StrCat(
      "on-demand: the pending operation (", OpWords(frozen.op),
      ") was launched less than 30 s before the dumps were written: no time limit can have passed, "
      "and the job may go on; take dumps again in a minute"));
}

// Judges dumps of the ranks' flight recorders. Hangs that only the clock shows are reported by
// plumbd (server/stream/liveness.h, analysis/processes/hang_verdict.h), without evidence.
class Hang : public Rule {
 public:
  bool judges_evidence() const override { return false; }
  void Judge(const SiteStep& step, VerdictSink& out) override {
    std::map<uint32_t, const v1::FlightRecorder*> recorders;
    bool on_demand = true;  // true if all dumps were taken on demand
    for (const Item& item : step.items) {
      if (!item.evidence->has_flight_recorder()) continue;
      recorders.emplace(item.source->rank(), &item.evidence->flight_recorder());
      on_demand &= item.evidence->exercised() == v1::EXERCISED_NO;
    }
    if (recorders.empty()) return;
    for (const auto& [rank, recorder] : recorders) {
      if (const std::string wrong = WrongDump(*recorder); !wrong.empty())
        return out.Add(Inconclusive(absl::StrFormat("wrong-dump: rank %d: %s", rank, wrong)));
    }
    const flight::Job job = flight::JoinRecorders(recorders);
    const Frozen frozen = flight::FindFrozen(job);
    v1::Verdict verdict = OfDumps(job, frozen);
    if (on_demand && verdict.has_finding()) verdict = MayGoOn(frozen);
    const std::vector<uint32_t>& ranks = frozen.ranks.empty() ? frozen.waiting : frozen.ranks;
    SetPlace(verdict, step.site.layer(), step.site.op(), step.step, step.step, ranks);
    out.Add(std::move(verdict));
  }
  void Persist(Archive& /*archive*/) override {}
};

}  // namespace

CatalogueEntry hang() {
  return {&kInfo, [](const Options& /*options*/) -> std::unique_ptr<Rule> {
            return std::make_unique<Hang>();
          }};
}

}  // namespace plumbline::rules
