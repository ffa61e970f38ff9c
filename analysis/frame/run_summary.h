// Summary of a whole run, for rules.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/archive.h"

namespace plumbline::analysis {

// State of a run at its end, or when a host requests it.
struct RunSummary {
  struct SiteCount {
    uint32_t declared_ranks = 0;
    uint64_t evidence = 0;
    int64_t declared_step = 0;  // first step at which some rank declared it
    std::string kind;           // as declared
    void Persist(Archive& a) { a(declared_ranks, evidence, declared_step, kind); }
  };
  struct LossCount {
    uint64_t count = 0;
    int64_t step_first = 0;
    int64_t step_last = 0;
    std::set<uint32_t> ranks;
    void Persist(Archive& a) { a(count, step_first, step_last, ranks); }
  };
  // Late evidence of one cause: it came after its step was closed without its rank
  // (engine/rank_progress.h). It was stored, and judged by the rules that need no join.
  struct LateCount {
    uint64_t count = 0;
    int64_t step_first = 0;
    int64_t step_last = 0;
    std::set<uint32_t> ranks;
    std::map<std::pair<std::string, std::string>, uint64_t> sites;  // items by (layer, op)
    void Persist(Archive& a) { a(count, step_first, step_last, ranks, sites); }
  };
  // Ranks of the newest attempt that sent nothing, of one role.
  struct AbsentRanks {
    bool rollout = false;
    uint32_t world = 0;
    uint64_t count = 0;
    std::vector<std::pair<uint32_t, uint32_t>> ranges;  // first and last; at most kMostRanges
    static constexpr size_t kMostRanges = 64;
  };
  // The line of the trainer's source that first reported a site.
  struct SourceLine {
    static constexpr size_t kMostFile = 256;  // bytes; the end of a longer name is kept
    std::string file;
    uint32_t line = 0;
    void Persist(Archive& a) { a(file, line); }
  };
  std::string run;
  int64_t step_first = 0;
  int64_t step_last = 0;
  // The newest step in which a measurement came, and the step in which the next one is due. -1: not
  // known. Of the newest attempt.
  int64_t last_look = -1;
  int64_t next_look = -1;
  std::vector<uint32_t> ranks;                                      // ranks seen, sorted
  std::map<std::pair<std::string, std::string>, SiteCount> sites;   // (layer, op)
  std::map<std::pair<std::string, std::string>, SourceLine> lines;  // of the first kMostLines
  static constexpr size_t kMostLines = 8192;                        // as many as one process sends
  // (layer, op, cause). Layer and op may be empty for loss that belongs to no site.
  std::map<std::tuple<std::string, std::string, std::string>, LossCount> losses;
  std::map<std::string, LateCount> late;  // by cause
  uint64_t evidence = 0;                  // items, including late ones
  uint64_t verdicts = 0;                  // number so far, from rules outside group meta
  // Number of earlier ends of the run: it was judged as a whole, then a process returned. A rule
  // that finishes its state at the end of a run does this once per end. RunState stores it.
  uint64_t ends = 0;
  std::vector<AbsentRanks> absent;  // of processes alone; set by RunState::Summarize
  bool meta_alone = false;          // no rule outside group meta is active
  // Not stored here: meta_alone follows from the engine's rules; RunState stores ends, last_look
  // and lines, and derives absent and next_look.
  void Persist(Archive& a) {
    a(run, step_first, step_last, ranks, sites, losses, late, evidence, verdicts);
  }
};

}  // namespace plumbline::analysis
