// Logs of NCCL: calls joined over ranks, files and mixed lines, and the verdicts of the rules on
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "audit/readers/nccl_log/reader.h"
#include "audit/readers/scalars/point_file.h"
#include "tests/audit/audit_dumps.h"
#include "tests/audit/dump_builder.h"
#include "tests/support/files.h"

namespace plumbline::audit {
namespace {

using testing::Audit;
using ::testing::HasSubstr;
using testing::VerdictOf;

constexpr char kMismatch[] = "precision/collective-mismatch";
constexpr char kSum[] = "precision/collective-sum";

struct Call {
  std::string name = "AllReduce";
  uint64_t number = 0;
  uint64_t count = 1024;
  int datatype = 9;  // bf16
  int op = 0;
  int root = 0;
};

std::string Hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "%lx", value);
  return text;
}

// The log of one process in the format of NCCL 2.18 and later, or of an older one.
class Process {
 public:
  Process(int rank, bool ids = true)
      : rank_(rank), ids_(ids), pid_(4000 + rank), begin_("node" + std::to_string(rank / 4)) {}

  std::string Head() const {
    const std::string pid = std::to_string(pid_);
    return begin_ + ":" + pid + ":" + std::to_string(pid_ + 100) + " [" +
           std::to_string(rank_ % 4) + "] NCCL INFO ";
  }
  void Report(const std::string& text) { lines_.push_back(Head() + text + "\n"); }

  // `id`: of the communicator; `more`: the text that a split adds.
  void Make(uint64_t comm, int rank, int nranks, uint64_t id, const std::string& more = "") {
    std::string stated = "comm 0x" + Hex(comm) + " rank " + std::to_string(rank) + " nranks " +
                         std::to_string(nranks) + " cudaDev " + std::to_string(rank_ % 4) +
                         " nvmlDev 0 busId 1b000";
    if (!more.empty()) {
      stated += " " + more;
    } else if (ids_) {
      stated += " commId 0x" + Hex(id);
    }
    if (ids_) Report("ncclCommInitRank " + stated + " - Init START");
    if (rank == 0) {
      for (int channel = 0; channel < 2; ++channel) {
        std::string ring = "Channel 0" + std::to_string(channel) + "/02 :";
        for (int i = 0; i < nranks; ++i)
          ring += " " + std::to_string(channel == 0 ? i : (nranks - i) % nranks);
        Report(ring);
      }
    }
    Report("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM");
    Report(stated + " - Init COMPLETE");
  }
  void Destroy(uint64_t comm) {
    Report("comm 0x" + Hex(comm) + " rank 0 nranks 4 cudaDev 0 busId 1b000 - Destroy COMPLETE");
  }
  static std::string Text(uint64_t comm, int nranks, const Call& call) {
    return call.name + ": opCount " + Hex(call.number) +
           " sendbuff 0x7f4f8a000000 recvbuff 0x7f4f8a000000 count " + std::to_string(call.count) +
           " datatype " + std::to_string(call.datatype) + " op " + std::to_string(call.op) +
           " root " + std::to_string(call.root) + " comm 0x" + Hex(comm) +
           " [nranks=" + std::to_string(nranks) + "] stream 0x5581c0de task 0 globalrank " + "0";
  }
  void Calls(uint64_t comm, int nranks, const Call& call) { Report(Text(comm, nranks, call)); }

  std::string File() const {
    std::string bytes = begin_ + ":1:1 [0] NCCL INFO Bootstrap : Using eth0\n";
    for (const std::string& line : lines_) bytes += line;
    return bytes;
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  int rank_;
  bool ids_;
  int pid_;
  std::string begin_;
  std::vector<std::string> lines_;
};

uint64_t Pointer(int rank, int nth = 0) {
  return 0x55d000000000u + 0x1000u * static_cast<uint64_t>(rank) +
         0x10u * static_cast<uint64_t>(nth);
}

// Ranks that make the same calls, except for the changes that `change` makes.
template <typename Change>
std::vector<Process> World(int nranks, int calls, const Change& change, bool ids = true) {
  std::vector<Process> all;
  for (int rank = 0; rank < nranks; ++rank) {
    Process process(rank, ids);
    process.Make(Pointer(rank), rank, nranks, 0xabcdef);
    for (int i = 0; i < calls; ++i) {
      Call call;
      call.number = static_cast<uint64_t>(i);
      call.count = 1024u + static_cast<uint64_t>(i);
      change(rank, call);
      process.Calls(Pointer(rank), nranks, call);
    }
    all.push_back(process);
  }
  return all;
}

std::vector<Process> World(int nranks, int calls) {
  return World(nranks, calls, [](int, Call&) {});
}

AuditResult AuditFiles(const std::vector<std::string>& files) {
  const test::TempFolder folder;
  std::vector<std::string> paths;
  for (size_t i = 0; i < files.size(); ++i)
    paths.push_back(folder.Write("nccl." + std::to_string(i) + ".log", files[i]));
  return Audit(paths);
}

AuditResult AuditWorld(const std::vector<Process>& world) {
  std::vector<std::string> files;
  for (const Process& process : world) files.push_back(process.File());
  return AuditFiles(files);
}

std::string AllProblems(const AuditResult& result) {
  std::string text;
  for (const InputReport& input : result.inputs) {
    EXPECT_EQ(input.format, "nccl-log");
    for (const Problem& p : input.problems)
      text += (p.error ? "error: " : "note: ") + p.text + "\n";
  }
  return text;
}

std::vector<const v1::Finding*> FindingsOf(const AuditResult& result, const std::string& rule) {
  std::vector<const v1::Finding*> found;
  for (const auto& finding : result.report.findings()) {
    if (finding->rule() == rule) found.push_back(&*finding);
  }
  return found;
}

// The evidence of each rank that is read from files, by (layer, op, step).
using Sites = std::map<std::tuple<std::string, std::string, int64_t>, std::vector<v1::Evidence>>;
Sites ReadSites(const std::vector<std::string>& files) {
  const test::TempFolder folder;
  std::deque<InputReport> reports;
  std::vector<InputReport*> pointers;
  for (size_t i = 0; i < files.size(); ++i) {
    reports.emplace_back().path = folder.Write(std::to_string(i), files[i]);
    pointers.push_back(&reports.back());
  }
  Sites sites;
  for (const auto& source : NcclLogReader().Open(pointers)) {
    for (v1::Batch batch; source->Next(&batch); batch.Clear()) {
      for (const v1::Evidence& e : batch.evidence())
        sites[{e.site().layer(), e.site().op(), e.step()}].push_back(e);
    }
  }
  return sites;
}

TEST(NcclLog, RanksThatAgreePass) {
  const AuditResult result = AuditWorld(World(4, 300));
  EXPECT_EQ(AllProblems(result), "");
  for (const InputReport& input : result.inputs) EXPECT_EQ(input.records, 300u);
  const v1::Verdict* verdict = VerdictOf(result, kMismatch);
  ASSERT_NE(verdict, nullptr);
  EXPECT_EQ(verdict->kind(), v1::Verdict::KIND_PASS);
  EXPECT_EQ(verdict->site().layer(), "world");
  EXPECT_EQ(verdict->site().op(), "all_reduce");
  EXPECT_EQ(verdict->site().ranks_size(), 4);
  EXPECT_TRUE(FindingsOf(result, kSum).empty());
}

struct Difference {
  const char* what;
  void (*change)(Call& call);
  const char* cause;
  const char* words;
};

TEST(NcclLog, WhatOneRankStatesOtherwiseIsFound) {
  const Difference differences[] = {
      {"count", [](Call& c) { c.count = 999936; }, "different-count", "999936 on rank 3"},
      {"dtype", [](Call& c) { c.datatype = 6; }, "different-dtype", "f16 on rank 3"},
      {"op", [](Call& c) { c.op = 4; }, "different-operation", "avg on rank 3"},
      {"root", [](Call& c) { c.root = 1; }, "different-root", "1 on rank 3"},
      {"collective", [](Call& c) { c.name = "AllGather"; }, "different-operation", "on rank 3"},
  };
  for (const Difference& d : differences) {
    const AuditResult result = AuditWorld(World(4, 100, [&](int rank, Call& call) {
      if (rank == 3 && call.number == 26) d.change(call);
    }));
    EXPECT_EQ(AllProblems(result), "");
    const auto found = FindingsOf(result, kMismatch);
    ASSERT_EQ(found.size(), 1u) << d.what;
    EXPECT_EQ(found[0]->cause().id(), d.cause);
    EXPECT_THAT(found[0]->explanation(), HasSubstr(d.words));
    EXPECT_THAT(found[0]->explanation(), HasSubstr("Call 26 of group world"));
    EXPECT_EQ(found[0]->level(), v1::LEVEL_ERROR);
    EXPECT_EQ(found[0]->strength(), v1::STRENGTH_PROVED);
  }
}

// One file for all processes: each process's lines in order, mixed with those of the others.
std::string Interleaved(const std::vector<Process>& world, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<size_t> next(world.size());
  std::string bytes;
  for (size_t left = world.size(); left > 0;) {
    const size_t i = random() % world.size();
    if (next[i] == world[i].lines().size()) continue;
    bytes += world[i].lines()[next[i]++];
    left -= next[i] == world[i].lines().size() ? 1 : 0;
  }
  return bytes;
}

TEST(NcclLog, OneFileForAllProcesses) {
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    const auto world = World(8, 60, [](int rank, Call& call) {
      if (rank == 5 && call.number == 40) call.count = 7;
    });
    const AuditResult result = AuditFiles({Interleaved(world, seed)});
    EXPECT_EQ(AllProblems(result), "");
    ASSERT_EQ(FindingsOf(result, kMismatch).size(), 1u);
    EXPECT_THAT(FindingsOf(result, kMismatch)[0]->explanation(), HasSubstr("7 on rank 5"));
    EXPECT_TRUE(FindingsOf(AuditFiles({Interleaved(World(8, 60), seed)}), kMismatch).empty());
  }
}

// Processes whose buffers are flushed at any point, into each other's lines: incomplete calls are
// ignored, so that healthy ranks never seem to disagree.
TEST(NcclLog, MixedLinesAccuseNone) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::string> left;
    std::string bytes;
    for (const Process& process : World(4, 80)) {
      const std::string file = process.File();
      const size_t made = file.find("AllReduce");
      const size_t begin = file.rfind('\n', made) + 1;
      bytes += file.substr(0, begin);
      left.push_back(file.substr(begin));
    }
    while (std::any_of(left.begin(), left.end(), [](const auto& text) { return !text.empty(); })) {
      std::string& from = left[random() % left.size()];
      // A digit inserted into a number cannot be detected; pieces from a pipe or buffer are longer.
      const size_t size = 32 + random() % (seed % 2 == 0 ? 3000 : 200);
      bytes += from.substr(0, size);
      from.erase(0, size);
    }
    const AuditResult result = AuditFiles({bytes});
    for (const v1::Finding* finding : FindingsOf(result, kMismatch))
      ADD_FAILURE() << seed << ": " << finding->explanation();
    EXPECT_FALSE(result.inputs_failed());
    EXPECT_GT(result.inputs[0].records, seed % 2 == 0 ? 100u : 0u);
    EXPECT_THAT(AllProblems(result), HasSubstr("note: expected complete calls"));
  }
}

// Prefixes of a scheduler, a launcher and newer versions.
TEST(NcclLog, PrefixesBeforeTheLine) {
  const auto world = World(2, 20, [](int rank, Call& call) {
    if (rank == 1 && call.number == 9) call.count = 7;
  });
  for (const char* prefix : {"3: ", "[rank3]: ", "[2025-01-01 00:00:00] ", "[default0]: x "}) {
    std::string bytes;
    for (const Process& process : world) {
      for (const std::string& line : process.lines()) bytes += prefix + line;
    }
    EXPECT_EQ(FindingsOf(AuditFiles({bytes}), kMismatch).size(), 1u) << prefix;
  }
}

// Communicators of equal size and numbers are distinguished by id, and parts by colour.
TEST(NcclLog, CommunicatorsOfOneSize) {
  for (const bool parted : {false, true}) {
    std::vector<Process> all;
    for (int rank = 0; rank < 8; ++rank) {
      Process process(rank);
      process.Make(Pointer(rank), rank, 8, 0xabc);
      const int color = rank / 4;
      process.Make(Pointer(rank, 1), rank % 4, 4, 0x100u + static_cast<uint64_t>(color),
                   parted ? "parent 0x" + Hex(Pointer(rank)) + " splitCount 1 color " +
                                std::to_string(color) + " key 0"
                          : "");
      for (uint64_t i = 0; i < 20; ++i) {
        Call call;
        call.number = i;
        call.count = 100u + static_cast<uint64_t>(color);
        if (rank == 6 && i == 12) call.count = 5;
        process.Calls(Pointer(rank, 1), 4, call);
      }
      all.push_back(process);
    }
    const AuditResult result = AuditWorld(all);
    EXPECT_EQ(AllProblems(result), "");
    const auto found = FindingsOf(result, kMismatch);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0]->site().layer(), "ranks 4-7");
    EXPECT_THAT(found[0]->explanation(), HasSubstr("5 on rank 6"));
  }
}

// Before 2.18 logs do not state which of two groups a rank is in: the groups are left out, the
// world is not.
TEST(NcclLog, OldVersionsWithoutIds) {
  std::vector<Process> all;
  for (int rank = 0; rank < 4; ++rank) {
    Process process(rank, false);
    process.Make(Pointer(rank), rank, 4, 0);
    process.Make(Pointer(rank, 1), rank % 2, 2, 0);
    for (uint64_t i = 0; i < 20; ++i) {
      Call call;
      call.number = i;
      call.count = rank < 2 ? 100 : 200;  // of its own group
      process.Calls(Pointer(rank, 1), 2, call);
      call.count = rank == 2 && i == 7 ? 5 : 300;
      process.Calls(Pointer(rank), 4, call);
    }
    all.push_back(process);
  }
  const AuditResult result = AuditWorld(all);
  EXPECT_THAT(AllProblems(result), HasSubstr("note: expected one process for each rank"));
  EXPECT_FALSE(result.inputs_failed());
  const auto found = FindingsOf(result, kMismatch);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0]->site().layer(), "world");
  EXPECT_THAT(found[0]->explanation(), HasSubstr("5 on rank 2"));
}

// A pointer that is freed and reused for the next communicator.
TEST(NcclLog, APointerThatIsUsedAgain) {
  std::vector<Process> all;
  for (int rank = 0; rank < 4; ++rank) {
    Process process(rank);
    process.Make(Pointer(rank), rank, 4, 0xaaa);
    process.Calls(Pointer(rank), 4, {.number = 0, .count = 10});
    process.Destroy(Pointer(rank));
    // The ranks are rotated.
    process.Make(Pointer(rank), (rank + 1) % 4, 4, 0xbbb);
    process.Calls(Pointer(rank), 4, {.number = 0, .count = rank == 1 ? 21u : 20u});
    all.push_back(process);
  }
  const AuditResult result = AuditWorld(all);
  EXPECT_EQ(AllProblems(result), "");
  const auto found = FindingsOf(result, kMismatch);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0]->site().layer(), "world #2");
  EXPECT_THAT(found[0]->explanation(), HasSubstr("21 on rank 1"));
}

TEST(NcclLog, PointToPointIsPassedOver) {
  auto world = World(2, 5);
  for (int rank = 0; rank < 2; ++rank) {
    world[static_cast<size_t>(rank)].Calls(Pointer(rank), 2,
                                           {.name = rank == 0 ? "Send" : "Recv",
                                            .number = 0,
                                            .count = 7u + static_cast<uint64_t>(rank)});
  }
  const AuditResult result = AuditWorld(world);
  EXPECT_EQ(AllProblems(result), "");
  EXPECT_TRUE(FindingsOf(result, kMismatch).empty());
}

TEST(NcclLog, RingsOfEachChannel) {
  std::vector<std::string> files;
  for (const Process& process : World(4, 3)) files.push_back(process.File());
  const Sites sites = ReadSites(files);
  ASSERT_EQ(sites.size(), 3u);
  for (const auto& [site, items] : sites) {
    ASSERT_EQ(items.size(), 4u);
    const v1::ReductionCall& call = items[0].reduction().call();
    EXPECT_EQ(call.group_rank(), 0u);
    EXPECT_EQ(call.channels(), 2u);
    EXPECT_EQ(std::vector<uint32_t>(call.ring_order().begin(), call.ring_order().end()),
              (std::vector<uint32_t>{0, 1, 2, 3, 0, 3, 2, 1}));
    EXPECT_EQ(call.wire_dtype(), v1::DTYPE_BF16);
    EXPECT_EQ(call.op(), v1::ReductionCall::OP_SUM);
    EXPECT_EQ(call.group_size(), 4u);
    EXPECT_EQ(call.transport(), "nccl");
  }
}

// From the calls of a single rank: only bf16 sums over many ranks are biased.
TEST(NcclLog, ABiasIsPredicted) {
  const auto predicted = [](int nranks, const Call& call) {
    Process process(3);
    process.Make(Pointer(3), 3, nranks, 0xabc);
    process.Calls(Pointer(3), nranks, call);
    const AuditResult result = AuditFiles({process.File()});
    std::vector<v1::Finding> found;
    for (const v1::Finding* finding : FindingsOf(result, kSum)) found.push_back(*finding);
    return found;
  };
  const auto found = predicted(512, {});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].level(), v1::LEVEL_NOTE);
  EXPECT_THAT(found[0].explanation(), HasSubstr("Predicted, not measured: a bf16 ring over 512"));
  EXPECT_TRUE(predicted(8, {}).empty());
  EXPECT_TRUE(predicted(512, {.datatype = 7}).empty());
  EXPECT_TRUE(predicted(512, {.op = 2}).empty());
  EXPECT_TRUE(predicted(512, {.name = "AllGather"}).empty());
  EXPECT_TRUE(predicted(512, {.datatype = 2}).empty());
  EXPECT_EQ(predicted(512, {.name = "ReduceScatter"}).size(), 1u);
}

// Calls without the lines that create their communicators: the log began later.
TEST(NcclLog, ALogWithoutItsBeginning) {
  std::string bytes;
  for (const Process& process : World(4, 10, [](int rank, Call&c) { c.count += rank; })) {
    for (const std::string& line : process.lines()) {
      if (line.find("opCount") != std::string::npos) bytes += line;
    }
  }
  const AuditResult result = AuditFiles({bytes});
  EXPECT_TRUE(FindingsOf(result, kMismatch).empty());
  EXPECT_EQ(result.inputs[0].records, 40u);
}

// Random calls of random groups with known differences: each is reported with every rank's
// statement, and nothing else differs.
TEST(NcclLog, PlantedDifferencesAreAllThatDiffer) {
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    std::mt19937 random(seed);
    const int nranks = 2 << (random() % 3);
    std::set<std::pair<std::string, int64_t>> planted, seen;
    std::vector<Process> all;
    for (int rank = 0; rank < nranks; ++rank) {
      Process process(rank);
      process.Make(Pointer(rank), rank, nranks, 0xabc);
      process.Make(Pointer(rank, 1), nranks - 1 - rank, nranks, 0xdef);
      all.push_back(process);
    }
    for (uint64_t i = 0; i < 2000; ++i) {
      const int nth = static_cast<int>(random() % 2);
      Call call;
      call.number = i;
      call.count = 1 + random() % 100;
      call.datatype = static_cast<int>(random() % 12);
      call.name = random() % 2 == 0 ? "AllReduce" : "AllGather";
      const bool differs = random() % 100 == 0;
      const int who = static_cast<int>(random() % static_cast<uint32_t>(nranks));
      if (differs) planted.insert({nth == 0 ? "world" : "world #2", static_cast<int64_t>(i)});
      for (int rank = 0; rank < nranks; ++rank) {
        Call mine = call;
        if (differs && rank == who) ++mine.count;
        all[static_cast<size_t>(rank)].Calls(Pointer(rank, nth), nranks, mine);
      }
    }
    std::vector<std::string> files;
    for (const Process& process : all) files.push_back(process.File());
    if (seed % 2 == 0) files = {Interleaved(all, seed)};
    for (const auto& [site, items] : ReadSites(files)) {
      ASSERT_EQ(items.size(), static_cast<size_t>(nranks));
      for (const v1::Evidence& e : items) {
        if (e.reduction().call().count() != items[0].reduction().call().count())
          seen.insert({std::get<0>(site), std::get<2>(site)});
      }
    }
    EXPECT_EQ(seen, planted) << seed;
  }
}

// Evidence is bounded for any number of calls.
TEST(NcclLog, ManyCallsAreFewRecords) {
  const auto world = World(2, 30000, [](int, Call& call) { call.count = 64; });
  std::vector<std::string> files;
  for (const Process& process : world) files.push_back(process.File());
  size_t items = 0;
  for (const auto& [site, of_site] : ReadSites(files)) items += of_site.size();
  EXPECT_LE(items, 200u);
  EXPECT_GE(items, 2u);
}

TEST(NcclLog, Recognised) {
  const NcclLogReader reader;
  const auto recognised = [&](const std::string& bytes) {
    const test::TempFolder folder;
    const std::string path = folder.Write("file", bytes);
    const auto head = std::string_view(bytes).substr(0, Reader::kHeadBytes);
    return std::pair(reader.Recognise(path, head), TrainerLogFormat().recognise(path, head));
  };
  const Process process = World(2, 3)[0];
  std::string start;
  for (const std::string& line : process.lines()) {
    if (line.find("opCount") == std::string::npos) start += line;
  }
  const std::string training = "step 1: loss 2.5\nstep 2: loss 2.25\n";
  EXPECT_EQ(recognised(process.File()), std::pair(true, false));
  EXPECT_EQ(recognised(start), std::pair(true, false));
  EXPECT_EQ(recognised(start + training), std::pair(false, true));
  EXPECT_TRUE(recognised(process.File() + training).first);
  EXPECT_EQ(recognised(std::string(200000, 'x') + "\n" + process.File()), std::pair(true, false));
  EXPECT_EQ(recognised("NCCL INFO\nhello\n"), std::pair(false, false));
  EXPECT_EQ(recognised("see NCCL INFO AllReduce: opCount in the docs\n"), std::pair(false, false));
  EXPECT_EQ(recognised(""), std::pair(false, false));
}

// A log cut at any position is read without an error and without an accusation.
TEST(NcclLog, ACutLogAccusesNone) {
  const std::string bytes = Interleaved(World(3, 8), 3);
  for (size_t size = 0; size < bytes.size(); size += size < 700 ? 3 : 37) {
    const AuditResult result = AuditFiles({bytes.substr(0, size)});
    if (result.inputs[0].format != "nccl-log") continue;
    EXPECT_FALSE(result.inputs_failed()) << size;
    EXPECT_TRUE(FindingsOf(result, kMismatch).empty()) << size;
  }
}

}  // namespace
}  // namespace plumbline::audit
