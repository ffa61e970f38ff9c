// Implements precision/collective-sum for compressed reductions over steps (compression_drift.h).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "analysis/collective/compression_drift.h"
#include "analysis/frame/frame.h"

namespace plumbline::analysis {

// From this missing share of the persistent part on, the loss is a warning, or an error.
inline constexpr double kCompressionWarning = 0.1, kCompressionError = 0.5;

// Returns LEVEL_UNSPECIFIED if no loss is known.
v1::Level CompressionLevel(const CompressionDrift& drift);

// Returns a verdict without a place. `algorithm` is the declared algorithm.
v1::Verdict CompressionVerdict(const CompressionDrift& drift, const std::string& algorithm);

// The state of a site with compressed reductions, over the steps of a run.
struct CompressedSite {
  using Key = std::tuple<v1::Role, std::string, std::string>;  // role, layer, op
  using Sites = std::map<Key, CompressedSite>;

  // Takes one step's calls. Reports if a higher level is reached.
  static void Take(const Key& key, const SiteStep& step, const std::vector<JoinedReduction>& calls,
                   Sites& sites, VerdictSink& out);
  // At the run's end, reports results that do not belong to a single step.
  void JudgeRun(const Key& key, VerdictSink& out) const;

  void Persist(Archive& a) { a(drift, algorithm, reported, step_first, step_last, ranks); }

  CompressionDrift drift;
  std::string algorithm;
  v1::Level reported = v1::LEVEL_UNSPECIFIED;
  int64_t step_first = 0, step_last = 0;
  std::set<uint32_t> ranks;

 private:
  v1::Verdict Verdict(const Key& key) const;
};

}  // namespace plumbline::analysis
