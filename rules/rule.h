// The frame every rule fits into: what it says about itself, what it is given, what it answers.
//
// A rule is a pure function from evidence (plus a short history that the rule object keeps) to
// verdicts. It never sees arrival order, wall-clock time or the host it runs in, so the same
// evidence gives the same verdicts live, after a crash and offline. Not thread-safe: the engine
// calls each rule object from one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/archive.h"
#include "plumbline/v1/batch.pb.h"
#include "plumbline/v1/evidence.pb.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

enum class RuleStatus { kPlanned, kBuilt };

// An option as `--set RULE.OPTION=VALUE` sets it.
struct OptionInfo {
  enum class Type { kNumber, kInteger, kFlag, kChoice, kText };  // kText: set again, it is appended
  const char* name;
  Type type;
  const char* unit;           // "bits", "steps", ... or ""
  const char* default_value;  // as text
  const char* reason;         // why this default
  const char* choices = "";   // kChoice: "a|b|c"
  double low = 0;             // kNumber, kInteger: inclusive range
  double high = 0;
  std::string (*check)(const std::string& value) = nullptr;  // kText: what is wrong; "": nothing
};

struct RuleInfo {
  const char* id;     // "group/name", fixed by the contract
  const char* title;  // one line
  v1::Level level;    // the highest level it may reach
  RuleStatus status;
  const char* since;  // tool version that first had it; "" while planned
  const char* page;   // Markdown: the rule's manual page, from its own file; "" while planned
  std::span<const OptionInfo> options;

  std::string_view group() const {
    return std::string_view(id).substr(0, std::string_view(id).find('/'));
  }
};

// Values of one rule's options, validated against its OptionInfo.
class Options {
 public:
  explicit Options(const RuleInfo& info);

  // Returns an error text, empty on success.
  std::string Set(std::string_view option, std::string_view value);

  // The option must exist in the rule's table and have that type.
  double Number(std::string_view option) const;
  int64_t Integer(std::string_view option) const;
  bool Flag(std::string_view option) const;
  const std::string& Choice(std::string_view option) const;
  const std::string& Text(std::string_view option) const;

  // "option=value" of every option, set or not, separated by blanks: equal for equal options.
  std::string Words() const;

 private:
  const RuleInfo* info_;
  std::map<std::string, std::string, std::less<>> values_;
};

// One evidence item and where it came from. Pointers are valid during the call only.
struct Item {
  const v1::Source* source = nullptr;
  const v1::Evidence* evidence = nullptr;
};

// All evidence of one (run, attempt, role, site, step), every rank: sorted by (rank, call).
struct SiteStep {
  std::string run;
  uint32_t attempt = 0;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  int64_t step = 0;
  v1::Site site;
  uint32_t world_size = 0;  // 0: unknown
  // Ranks of the role whose step was closed over: some of them, kNamedMissing at most; empty when
  // there are none.
  std::vector<uint32_t> missing_ranks;
  static constexpr size_t kNamedMissing = 64;
  // What one rank reported after its step had been closed over it, by itself: the other ranks'
  // items were judged then. Only for rules that ask for it (Rule::judges_late).
  bool late = false;
  std::vector<Item> items;
  // Work that several rules of this step need, done once: values by a key of the sharers' choosing.
  std::shared_ptr<std::map<std::string, std::shared_ptr<const void>>> shared =
      std::make_shared<std::map<std::string, std::shared_ptr<const void>>>();
};

// A step of one (run, attempt, role) that is closed: every site of it has been judged.
struct StepEnd {
  std::string run;
  uint32_t attempt = 0;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  int64_t step = 0;
  uint32_t world_size = 0;  // 0: unknown
};

// What is known of a run when it is looked at as a whole (at its end, or when a host asks).
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
  // Evidence that came after its step was closed over its rank, of one cause (engine/
  // rank_progress.h). It was stored, and judged by the rules that need no join.
  struct LateCount {
    uint64_t count = 0;
    int64_t step_first = 0;
    int64_t step_last = 0;
    std::set<uint32_t> ranks;
    std::map<std::pair<std::string, std::string>, uint64_t> sites;  // items by (layer, op)
    void Persist(Archive& a) { a(count, step_first, step_last, ranks, sites); }
  };
  std::string run;
  int64_t step_first = 0;
  int64_t step_last = 0;
  std::vector<uint32_t> ranks;                                     // seen, sorted
  std::map<std::pair<std::string, std::string>, SiteCount> sites;  // (layer, op)
  // (layer, op, cause); layer and op may be empty: loss that no site owns
  std::map<std::tuple<std::string, std::string, std::string>, LossCount> losses;
  std::map<std::string, LateCount> late;  // by cause
  uint64_t evidence = 0;                  // items, late ones included
  uint64_t verdicts = 0;                  // so far, of rules outside group meta
  void Persist(Archive& a) {
    a(run, step_first, step_last, ranks, sites, losses, late, evidence, verdicts);
  }
};

// Where a rule puts its verdicts. Verdict.rule, site.run and finding's rule, site and fingerprint
// are filled by the engine, and so are layer, op, steps and ranks where the rule leaves them empty:
// a rule that looks back over a window says which steps it speaks of.
class VerdictSink {
 public:
  virtual ~VerdictSink() = default;
  virtual void Add(v1::Verdict verdict) = 0;
};

class Rule {
 public:
  virtual ~Rule() = default;

  // False: somebody else speaks for it (Engine::Tell). Nobody can say that a suppression of it
  // matched nothing because it ran.
  virtual bool judges_evidence() const { return true; }

  // Scalars come by the million: only those of a site that some rule reads reach Judge, of every
  // rule then. The answer depends on the site and the options alone.
  virtual bool ReadsScalar(const v1::Site& /*site*/) const { return false; }

  // True: Judge is also shown late evidence (SiteStep::late). What it says of it must not need the
  // step's other items; a rule that remembers keeps late items apart and speaks in JudgeLate.
  virtual bool judges_late() const { return false; }

  // Called for each closed step in the order (attempt, step), then by site (layer, op).
  virtual void Judge(const SiteStep& /*step*/, VerdictSink& /*out*/) {}

  // Called after the last site of a closed step: for rules that look across its sites. Such a rule
  // fills its verdict's layer, op, steps and ranks itself.
  virtual void JudgeStep(const StepEnd& /*step*/, VerdictSink& /*out*/) {}

  // Called at once when evidence came late, and when a step with late evidence has become whole.
  virtual void JudgeLate(const RunSummary& /*run*/, VerdictSink& /*out*/) {}

  // Called once when the run ends (or the audit's input does); verdicts over the run as a whole.
  virtual void JudgeRun(const RunSummary& /*run*/, VerdictSink& /*out*/) {}

  // Writes or reads everything that the rule keeps from one step to the next (base/archive.h); its
  // own version first, `archive.Version(1)`, raised whenever what follows changes. Options, and
  // what follows from them, are not kept: an object is read into only where it was made with the
  // same. Called between steps. A rule without memory says so by an empty body.
  virtual void Persist(Archive& archive) = 0;
};

// 32 hex digits over (rule, run, layer, op): the same wherever the finding is reached.
std::string Fingerprint(std::string_view rule, const v1::FindingSite& site);

}  // namespace plumbline::rules
