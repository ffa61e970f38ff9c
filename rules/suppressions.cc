#include "rules/suppressions.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"
#include "rules/catalogue.h"

namespace plumbline::rules {
namespace {

constexpr std::string_view kOwnRule = "meta/unused-suppression";

bool Fits(const std::string& glob, const std::string& text) {
  return glob.empty() || GlobMatch(glob, text);
}

v1::Verdict Make(const Suppression& s, const char* cause, const std::string& title,
                 const std::string& explanation, const char* fix) {
  FindingBuilder found;
  found.verdict().mutable_site()->set_layer(s.rule);
  found.verdict().mutable_site()->set_op(s.Words());
  found.Level(v1::LEVEL_WARNING)
      .Strength(v1::STRENGTH_PROVED)
      .Cause(cause, 1)
      .Title(title)
      .Explain(explanation)
      .Fix(fix)
      .Witness("rule", s.rule)
      .Witness("reason", s.reason)
      .Witness("expires", DateText(s.expires))
      .Witness("line", static_cast<double>(s.line));
  return found.Take();
}

}  // namespace

int32_t DayOf(int64_t unix_ns) {
  constexpr int64_t kDay = int64_t{86400} * 1'000'000'000;
  return static_cast<int32_t>(unix_ns / kDay);
}

std::string DateText(int32_t day) {
  const std::chrono::year_month_day date{std::chrono::sys_days{std::chrono::days{day}}};
  char text[32];
  std::snprintf(text, sizeof(text), "%04d-%02u-%02u", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
  return text;
}

bool Suppression::MatchesRun(std::string_view name) const {
  return run.empty() || GlobMatch(run, name);
}

bool Suppression::Matches(const v1::Finding& finding) const {
  const v1::FindingSite& site = finding.site();
  return GlobMatch(rule, finding.rule()) && MatchesRun(site.run()) && Fits(layer, site.layer()) &&
         finding.fingerprint().rfind(fingerprint, 0) == 0 &&
         (!has_steps || (site.step_first() >= step_first && site.step_last() <= step_last));
}

std::string Suppression::Words() const {
  std::string words;
  const auto add = [&](const char* key, const std::string& value) {
    if (!value.empty()) absl::StrAppend(&words, words.empty() ? "" : " ", key, "=", value);
  };
  add("run", run);
  add("layer", layer);
  add("fingerprint", fingerprint);
  if (has_steps) add("steps", absl::StrCat(step_first, "-", step_last));
  return words.empty() ? "any site" : words;
}

v1::SuppressionSet ToMessage(const std::vector<Suppression>& list, int32_t today) {
  v1::SuppressionSet set;
  set.set_today(today);
  for (const Suppression& s : list) {
    v1::SuppressionSet::Entry& e = *set.add_entries();
    e.set_rule(s.rule);
    e.set_run(s.run);
    e.set_layer(s.layer);
    e.set_fingerprint(s.fingerprint);
    if (s.has_steps) {
      e.set_step_first(s.step_first);
      e.set_step_last(s.step_last);
    }
    e.set_reason(s.reason);
    e.set_expires(s.expires);
    e.set_line(s.line);
  }
  return set;
}

std::vector<Suppression> FromMessage(const v1::SuppressionSet& set) {
  std::vector<Suppression> list;
  for (const v1::SuppressionSet::Entry& e : set.entries()) {
    Suppression& s = list.emplace_back();
    s.rule = e.rule();
    s.run = e.run();
    s.layer = e.layer();
    s.fingerprint = e.fingerprint();
    s.has_steps = e.has_step_first();
    s.step_first = e.step_first();
    s.step_last = e.step_last();
    s.reason = e.reason();
    s.expires = e.expires();
    s.line = e.line();
  }
  return list;
}

void Suppressor::Set(std::vector<Suppression> list, int32_t today) {
  const MutexLock lock(mutex_);
  std::vector<Entry> entries;
  for (Suppression& what : list) {
    // The same entry on another line is equal.
    const auto known = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
      Suppression there = e.what;
      there.line = what.line;
      return there == what;
    });
    const uint64_t matched = known == entries_.end() ? 0 : known->matched;
    entries.push_back({std::move(what), matched});
  }
  entries_ = std::move(entries);
  today_ = today;
}

bool Suppressor::Is(const std::vector<Suppression>& list, int32_t today) const {
  const MutexLock lock(mutex_);
  // Compare the day only if it decides.
  return std::equal(list.begin(), list.end(), entries_.begin(), entries_.end(),
                    [&](const Suppression& a, const Entry& b) PLUMB_REQUIRES(mutex_) {
                      return a == b.what && (a.expires >= today) == (b.what.expires >= today_);
                    });
}

void Suppressor::Mark(v1::Finding* finding) {
  if (finding->rule() == kOwnRule) return;  // otherwise an entry could hide itself
  const MutexLock lock(mutex_);
  for (Entry& e : entries_) {
    if (e.what.expires < today_ || !e.what.Matches(*finding)) continue;
    ++e.matched;
    finding->set_suppressed(true);
  }
}

std::vector<v1::Verdict> Suppressor::Expired(std::string_view run) const {
  std::vector<v1::Verdict> verdicts;
  const MutexLock lock(mutex_);
  for (const Entry& e : entries_) {
    const Suppression& s = e.what;
    if (s.expires >= today_ || !s.MatchesRun(run)) continue;
    v1::Verdict verdict =
        Make(s, "expired",
             absl::StrCat("the suppression of ", s.rule, " expired on ", DateText(s.expires)),
             absl::StrCat("It (", s.Words(), ": ", s.reason,
                          ") has no effect any more: matching findings are reported again."),
             "Fix the hidden fault and remove the suppression, or give it a new date and a valid "
             "reason.");
    v1::Finding& finding = *verdict.mutable_finding();
    finding.mutable_measured()->set_name("days since it expired");
    finding.mutable_measured()->set_value(today_ - s.expires);
    finding.mutable_measured()->set_unit("days");
    finding.mutable_threshold()->set_value(0);
    finding.mutable_threshold()->set_source("its `expires`");
    verdicts.push_back(std::move(verdict));
  }
  return verdicts;
}

v1::Verdict Suppressor::UnusedVerdict(const Suppression& s) {
  v1::Verdict verdict =
      Make(s, "unused", absl::StrCat("the suppression of ", s.rule, " matched nothing"),
           absl::StrCat("No finding was hidden by it (", s.Words(), ": ", s.reason,
                        "). It would hide a future finding."),
           "Remove it. If it should have matched, correct its rule, layer or steps.");
  v1::Finding& finding = *verdict.mutable_finding();
  finding.mutable_measured()->set_name("findings matched");
  finding.mutable_measured()->set_value(0);
  finding.mutable_measured()->set_unit("findings");
  finding.mutable_threshold()->set_value(1);
  finding.mutable_threshold()->set_source("a needed suppression matches at least one finding");
  return verdict;
}

}  // namespace plumbline::rules
