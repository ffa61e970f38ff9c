#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "audit/diff/diff_result.h"
#include "audit/render/finding_text.h"
#include "rules/engine/incidents.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostDifferences = 20;  // differences listed per kind; the others are counted
constexpr size_t kMargin = 4;

std::string Percent(double ln) { return absl::StrFormat("%.2f %%", 100 * std::expm1(ln)); }
// Returns how far B is above or below A, as a share of A: at most 100 % below.
std::string Apart(double ln) { return absl::StrFormat("%.2f %%", 100 * std::fabs(std::expm1(ln))); }

// Writes the report of plumb diff: a summary line, sides, series, settings, numerics, findings,
// times.
class DiffWriter : TextBlocks {
 public:
  DiffWriter(const DiffResult& result, const TextStyle& style)
      : TextBlocks(style), result_(result) {}

  std::string Render() {
    Side("A", result_.a);
    Side("B", result_.b);
    Broken("A", result_.a, result_.b);
    Broken("B", result_.b, result_.a);
    Early();
    Curves();
    Texts("Settings", "settings", result_.settings);
    Texts("Numerics", "models and biases", result_.numerics);
    Found();
    Times();
    std::string body = std::exchange(out_, "");
    Summary();
    return out_ + "\n" + body;
  }

 private:
  // ---- the two sides, and inputs that could not be read --------------------------------------

  void Side(const char* name, const DiffSide& side) {
    std::string text = absl::StrCat(name, "  ", Plural(side.runs.size(), "run"));
    for (size_t i = 0; i < side.runs.size() && i < kMostDifferences; ++i)
      absl::StrAppend(&text, i == 0 ? ": " : ", ", side.runs[i].path,
                      side.runs[i].run.empty() ? "" : " (" + side.runs[i].run + ")");
    Line(0, text);
    if (side.left_out > 0)
      Line(kMargin, absl::StrCat(side.left_out, " values are not shown: too many"));
    for (const InputReport& input : side.audit.inputs) {
      for (const Problem& problem : input.problems) Line(kMargin, input.Line(problem));
    }
  }

  // Writes "B is NaN from step 73 on: loss", the most important difference.
  void Broken(const char* name, const DiffSide& side, const DiffSide& other) {
    const std::map<std::string, SeriesPoint> here = FirstNonFinite(side),
                                             there = FirstNonFinite(other);
    std::optional<SeriesPoint> first;
    std::string names;
    size_t count = 0;
    for (const auto& [series, point] : here) {
      if (there.contains(series)) continue;
      if (!first || point.step < first->step) first = point;
      if (++count <= kMargin) absl::StrAppend(&names, count == 1 ? "" : ", ", series);
    }
    if (!first) return;
    if (count > kMargin) absl::StrAppend(&names, " and ", count - kMargin, " more");
    const std::string broken =
        absl::StrCat(name, " is ", std::isnan(first->value) ? "NaN" : "infinite", " from step ",
                     first->step, " on");
    absl::StrAppend(&broken_, broken, "; ");
    Line(0, absl::StrCat(broken, ": ", names));
  }

  // Writes "B ends at step 100, A at step 300: loss".
  void Early() {
    for (const SeriesDiff& series : result_.series) {
      if (!EndsEarly(series)) continue;
      const std::string early =
          absl::StrCat("B ends at step ", series.last_b, ", A at step ", series.last_a);
      absl::StrAppend(&broken_, early, "; ");
      return Line(0, absl::StrCat(early, ": ", NameOf(series)));
    }
  }

  // Returns the first non-finite value of each series.
  static std::map<std::string, SeriesPoint> FirstNonFinite(const DiffSide& side) {
    std::map<std::string, SeriesPoint> first;
    for (const RecordedRun& run : side.runs) {
      for (const auto& [series, points] : run.series) {
        const auto bad = std::find_if(points.begin(), points.end(), [](const SeriesPoint& point) {
          return !std::isfinite(point.value);
        });
        if (bad == points.end()) continue;
        const auto [known, fresh] = first.emplace(series, *bad);
        if (!fresh && bad->step < known->second.step) known->second = *bad;
      }
    }
    return first;
  }

  // ---- series: losses always, others if they differ ----

  void Curves() {
    Heading("Series");
    if (result_.series.empty()) Line(2, "no value that all runs of both sides have");
    size_t same = 0, listed = 0;
    for (const SeriesDiff& series : result_.series) {
      const bool loss = series.role == DiffRole::kLoss;
      if (!loss && series.exact && !series.first_difference) {
        ++same;
        continue;
      }
      if (!loss && (!series.exact || listed++ >= kMostDifferences)) continue;
      One(series);
    }
    if (same > 0)
      Line(2, absl::StrCat(Plural(same, "other series", "other series"), ": equal bit by bit"));
    if (listed > kMostDifferences)
      Line(2, absl::StrCat("and ", listed - kMostDifferences, " more that differ"));
    Rewards();
    Names("only in A", result_.series_only_a);
    Names("only in B", result_.series_only_b);
  }

  // Writes the rewards that end apart, or that none does.
  void Rewards() {
    size_t alike = 0;
    for (const RewardDiff& reward : result_.rewards) {
      if (!reward.apart) {
        ++alike;
        continue;
      }
      Line(2, absl::StrFormat("reward %s: at the end B is %s A, %s and %s (medians of the newest "
                              "%s; in each of them one side lies above the other)",
                              reward.name, reward.b > reward.a ? "above" : "below",
                              ShortNumber(reward.b), ShortNumber(reward.a),
                              Plural(reward.points, "common step")));
    }
    if (alike > 0)
      Line(2, absl::StrCat(Plural(alike, "reward"), ": the ends are not distinguishable"));
  }

  // Returns "reward/mean (B 0.0195, A 0.861)" for up to three rewards that end apart.
  std::string RewardsApart() const {
    std::string text;
    size_t apart = 0;
    for (const RewardDiff& reward : result_.rewards) {
      if (!reward.apart || ++apart > 3) continue;
      absl::StrAppend(&text, text.empty() ? "" : ", ", reward.name, " (B ", ShortNumber(reward.b),
                      ", A ", ShortNumber(reward.a), ")");
    }
    return apart > 3 ? absl::StrCat(text, " and ", apart - 3, " more") : text;
  }

  // Writes the series that only one side has.
  void Names(const std::string& where, const std::vector<std::string>& names) {
    if (names.empty()) return;
    std::string text = where + ": ";
    for (size_t i = 0; i < names.size() && i < kMostDifferences; ++i)
      absl::StrAppend(&text, i == 0 ? "" : ", ", names[i]);
    if (names.size() > kMostDifferences)
      absl::StrAppend(&text, ", ", names.size() - kMostDifferences, " more");
    Line(2, text);
  }

  static std::string NameOf(const SeriesDiff& series) {
    return series.run.empty() ? series.name : absl::StrCat(series.name, " of ", series.run);
  }

  // Writes one series: equal bit by bit, or since which step it differs and by how much.
  void One(const SeriesDiff& series) {
    std::string text =
        absl::StrCat(NameOf(series), ", ", Plural(series.common, "common step"), ": ");
    if (!series.exact) {
      absl::StrAppend(&text, "several runs, not compared bit by bit");
    } else if (series.common == 0) {
      absl::StrAppend(&text, "nothing to compare");
    } else if (!series.first_difference) {
      absl::StrAppend(&text, "equal bit by bit");
    } else {
      absl::StrAppend(&text, "first differs at step ", *series.first_difference, ", ",
                      ExactNumber(series.value_a), " and ", ExactNumber(series.value_b));
    }
    Line(2, text);
    const bool few = series.by_step && series.by_step->comparison.block == 0;
    if (few && series.exact && series.common > 0 && !series.first_difference) return;
    if (series.by_step && series.by_step->comparison.points < series.common)
      Line(kMargin, absl::StrCat(series.common - series.by_step->comparison.points,
                                 " of these steps have a value that is NaN, infinite, or not above "
                                 "zero; they are not used below"));
    if (series.by_step) Along("step", *series.by_step);
    if (series.by_tokens) Along("token", *series.by_tokens);
    if (series.by_step && series.by_step->comparison.block > 0 &&
        !series.by_step->comparison.seeds_known)
      Line(kMargin,
           "one run per side: seeds are assumed to differ by 0.3 %, so differences under 1.8 % "
           "cannot be detected");
  }

  // Writes where B departs from A for good, or the smallest departure that could have been
  // detected.
  void Along(const std::string& axis, const AlongAxis& along) {
    const departure::Comparison& c = along.comparison;
    if (c.block == 0) return Few(axis, along);
    if (c.departure) {
      Line(kMargin, absl::StrCat("by ", axis, ": departs at ", axis, " ", ShortNumber(*along.onset),
                                 ", B ", c.departure->size > 0 ? "above" : "below", " A by ",
                                 Apart(c.departure->size), " (", "distinguishable from ",
                                 Percent(c.departure->threshold), " on)"));
    } else {
      Line(kMargin, absl::StrCat("by ", axis, ": no departure; less than ", Percent(c.smallest),
                                 " could not be detected"));
    }
    End(along);
  }

  // Writes which side is above, if there are too few points for blocks.
  void Few(const std::string& axis, const AlongAxis& along) {
    if (!along.few || along.few->points == 0)
      return Line(kMargin, absl::StrCat("by ", axis, ": no common point with a value above zero"));
    const departure::FewPoints& few = *along.few;
    Line(kMargin,
         absl::StrFormat(
             "by %s: %s, too few to find the step of departure (64 are needed); B is %s A by %s at "
             "the newest %d (median), above at %d of them: %s (sign test, probability by chance "
             "%.2g; seeds are assumed to differ by up to 1.8 %%)",
             axis, Plural(along.comparison.points, "common point"),
             few.size > 0 ? "above" : "below", Apart(few.size), few.points, few.above,
             few.apart ? "the sides differ" : "no difference is proved", few.chance));
    End(along);
  }

  void End(const AlongAxis& along) {
    if (along.end.points == 0) return;
    Line(kMargin, absl::StrFormat("at the end B is %s %s A (median of the newest %s)",
                                  Apart(along.end.size), along.end.size > 0 ? "above" : "below",
                                  Plural(along.end.points, "common point")));
  }

  // ---- settings and numerics ----

  void Texts(const char* heading, const char* what, const std::vector<TextDifference>& list) {
    Heading(heading);
    if (list.empty()) Line(2, absl::StrCat("no difference in the ", what, " that are recorded"));
    for (size_t i = 0; i < list.size() && i < kMostDifferences; ++i) {
      const TextDifference& d = list[i];
      Line(2, absl::StrCat(d.name, ": ", d.a.empty() ? "not recorded" : d.a, " | ",
                           d.b.empty() ? "not recorded" : d.b));
    }
    if (list.size() > kMostDifferences)
      Line(2, absl::StrCat("and ", list.size() - kMostDifferences, " more"));
  }

  // ---- findings of one side, and times ----

  void Found() {
    Heading("Findings");
    Line(2, absl::StrCat(Plural(result_.findings_in_both, "finding"), " in both"));
    Findings("A alone", result_.only_a);
    Findings("B alone", result_.only_b);
  }

  // Writes a line per incident.
  void Findings(const char* where, const std::vector<const v1::Finding*>& findings) {
    const std::vector<rules::Incident> incidents = rules::IncidentsOf(findings);
    for (size_t i = 0; i < incidents.size() && i < kMostDifferences; ++i) {
      const v1::Finding& f = incidents[i].shown();
      v1::FindingSite site = f.site();
      site.clear_run();
      const size_t more = incidents[i].findings.size() - 1;
      Line(2, absl::StrCat(where, ": ", std::string(LevelName(f.level())), " ", f.rule(), " ",
                           SiteText(site), more > 0 ? " and " + Plural(more, "more site") : "",
                           ": ", f.title()));
      for (const rules::Incident& symptom : incidents[i].symptoms)
        Line(kMargin, "also " + SymptomText(symptom.shown()));
    }
    if (incidents.size() > kMostDifferences)
      Line(2, absl::StrCat(where, ": and ", incidents.size() - kMostDifferences, " more"));
  }

  void Times() {
    if (result_.times.empty()) return;
    Heading("Time, ms per step");
    for (const TimeDifference& t : result_.times)
      Line(2, absl::StrFormat("%-12s %10.3f | %10.3f", t.kind, 1e3 * t.a, 1e3 * t.b));
  }

  // Writes the summary line.
  void Summary() {
    std::string departs;
    for (const SeriesDiff& series : result_.series) {
      if (!series.by_step) continue;
      const char* const comma = departs.empty() ? "" : ", ";
      if (series.by_step->onset) {
        absl::StrAppend(&departs, comma, NameOf(series), " at step ",
                        ShortNumber(*series.by_step->onset));
      } else if (series.by_step->few && series.by_step->few->apart) {
        absl::StrAppend(&departs, comma, NameOf(series), " (B ",
                        series.by_step->few->size > 0 ? "above" : "below", " by ",
                        Apart(series.by_step->few->size), ")");
      }
    }
    if (!result_.compared) {
      Line(0, "nothing was compared: no series has a common step on both sides");
      return;
    }
    const bool judged =
        std::any_of(result_.series.begin(), result_.series.end(), [](const SeriesDiff& series) {
          return series.by_step && (series.by_step->comparison.block > 0 ||
                                    (series.by_step->few && series.by_step->few->points >= 8));
        });
    const std::string rewards = RewardsApart();
    std::string none = judged ? "no departure" : "no loss could be compared for a departure";
    if (!judged && !result_.rewards.empty()) none = rewards.empty() ? "no reward ends apart" : "";
    if (!departs.empty()) none = "departure: " + departs;
    if (!rewards.empty())
      absl::StrAppend(&none, none.empty() ? "" : "; ", "rewards end apart: ", rewards);
    Line(0, absl::StrCat(broken_, none, "; ", Plural(result_.settings.size(), "setting"), ", ",
                         Plural(result_.numerics.size(), "model"), " and ",
                         Plural(rules::IncidentsOf(result_.only_a).size() +
                                    rules::IncidentsOf(result_.only_b).size(),
                                "incident"),
                         " differ"));
  }

  const DiffResult& result_;
  std::string broken_;  // sides with non-finite values, for the summary line
};

}  // namespace

std::string DiffText(const DiffResult& result, const TextStyle& style) {
  return DiffWriter(result, style).Render();
}

}  // namespace plumbline::audit
