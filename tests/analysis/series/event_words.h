// Events of a detector in the format of the slow implementation.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "analysis/series/series.h"

namespace plumbline::analysis::testing {

inline std::string WordsOf(const SeriesEvent& event) {
  char text[256];
  if (event.what == SeriesEvent::What::kFell) return "fell at " + std::to_string(event.rise.step);
  if (event.what == SeriesEvent::What::kRise) {
    const Rise& r = event.rise;
    std::snprintf(text, sizeof(text),
                  "rise at %lld from %.9g to %.9g sigma %.9g slope %.9g since %llu",
                  static_cast<long long>(r.step), r.best, r.level, r.sigma, r.slope_low,
                  static_cast<unsigned long long>(r.since));
    return text;
  }
  const char* const whats[] = {"opened", "grew", "doubled", "settled", "returned"};
  const Excursion& e = event.excursion;
  std::snprintf(text, sizeof(text),
                "%s %s %s onset %lld peak %lld %.9g level %.9g scale %.9g before %.9g points "
                "%llu/%llu quarters %.9g %.9g%s",
                whats[static_cast<int>(event.what)], NameOf(e.kind), e.warns() ? "warns" : "note",
                static_cast<long long>(e.onset_step), static_cast<long long>(e.peak_step), e.peak,
                e.level, e.scale, e.before, static_cast<unsigned long long>(e.above),
                static_cast<unsigned long long>(e.points), e.first_quarter, e.last_quarter,
                e.linear ? " linear" : "");
  return text;
}

}  // namespace plumbline::analysis::testing
