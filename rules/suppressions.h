// Suppressions: findings that the user has reviewed and does not want reported until a date. One
// library for every host. A suppressed finding is judged, counted and shown as suppressed, and
// raises no alarm. If a suppression matches nothing, or has expired, that is a finding too.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/archive.h"
#include "base/mutex.h"
#include "plumbline/v1/finding.pb.h"
#include "plumbline/v1/journal_event.pb.h"

namespace plumbline::rules {

// Everything that is set must match. One entry of the file:
//
//   [[suppress]]
//   rule = "causality/*"          # glob over rule ids
//   run = "exp-*"                 # optional globs
//   layer = "layers.3"
//   fingerprint = "d6bcb109"      # optional: its first digits, at least eight
//   steps = [100, 200]            # optional: range of the finding's steps, both included
//   reason = "known; see ISSUE-12"
//   expires = 2026-12-31          # the last day on which it holds (UTC)
struct Suppression {
  std::string rule;
  std::string run, layer, fingerprint;  // "" matches any
  bool has_steps = false;
  int64_t step_first = 0, step_last = 0;
  std::string reason;
  int32_t expires = 0;  // days since 1970-01-01
  uint32_t line = 0;    // line of the file, for messages

  bool Matches(const v1::Finding& finding) const;
  bool MatchesRun(std::string_view name) const;
  // Returns which findings it covers, in words: "layer=layers.3 steps=100-200"; "any site".
  std::string Words() const;
  bool operator==(const Suppression&) const = default;
  void Persist(Archive& a) {
    a(rule, run, layer, fingerprint, has_steps, step_first, step_last, reason, expires, line);
  }
};

// Parses the entries of a file. Returns InvalidArgument "PATH:LINE: key, what was expected, found
// ..., did you mean ...".
absl::StatusOr<std::vector<Suppression>> ParseSuppressions(const std::string& text,
                                                           const std::string& path);
// Reads the file and parses it. If it cannot be read, returns NotFound.
absl::StatusOr<std::vector<Suppression>> LoadSuppressions(const std::string& path);

// Convert to and from the form in a journal.
v1::SuppressionSet ToMessage(const std::vector<Suppression>& list, int32_t today);
std::vector<Suppression> FromMessage(const v1::SuppressionSet& set);

int32_t DayOf(int64_t unix_ns);
std::string DateText(int32_t day);  // "2026-12-31"

// Marks the findings that a list of suppressions matches, and counts the matches. Thread-safe.
class Suppressor {
 public:
  // Replaces the list, valid from this day on. Entries that existed before keep their counts.
  void Set(std::vector<Suppression> list, int32_t today);
  bool Is(const std::vector<Suppression>& list, int32_t today) const;

  // Sets `suppressed` of a finding that an entry matches, and counts every such entry.
  void Mark(v1::Finding* finding);

  // Returns verdicts of meta/unused-suppression on expired entries for this run. The engine sets
  // rule, run and fingerprint.
  std::vector<v1::Verdict> Expired(std::string_view run) const;
  // ... on entries that matched nothing in any run so far. `ran` returns whether a rule was active.
  template <typename Ran>
  std::vector<v1::Verdict> Unused(std::string_view run, Ran ran) const {
    std::vector<v1::Verdict> verdicts;
    const MutexLock lock(mutex_);
    for (const Entry& e : entries_) {
      const bool silent = e.matched == 0 && e.what.expires >= today_ && e.what.MatchesRun(run);
      if (silent && ran(e.what.rule)) verdicts.push_back(UnusedVerdict(e.what));
    }
    return verdicts;
  }

  void Clear() { Set({}, 0); }

  void Persist(Archive& archive) {
    const MutexLock lock(mutex_);
    archive(entries_, today_);
  }

 private:
  struct Entry {
    Suppression what;
    uint64_t matched = 0;
    void Persist(Archive& a) { a(what, matched); }
  };
  static v1::Verdict UnusedVerdict(const Suppression& what);

  mutable Mutex mutex_;  // guards what follows
  std::vector<Entry> entries_ PLUMB_GUARDED_BY(mutex_);
  int32_t today_ PLUMB_GUARDED_BY(mutex_) = 0;
};

}  // namespace plumbline::rules
