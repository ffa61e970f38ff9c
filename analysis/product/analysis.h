// Everything the matrix product rules know of one sampled call, worked out once a step.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/frame/frame.h"
#include "analysis/product/case.h"
#include "analysis/product/replay.h"
#include "analysis/statistics/statistics.h"

namespace plumbline::rules {

// An element beyond every error that f32 accumulation can make:
// |D - s| > ulp(D)/2 (16-bit D only) + (K+1) 2^-24 sum |ab| (Higham 2002, section 3.1).
struct BoundBreak {
  int sample = -1;  // recorded number; -1: none
  double d = 0;
  double exact = 0;
  double bound = 0;
  double excess() const;  // |d - exact| / bound
};

struct MatmulAnalysis {
  std::string blocked;  // "short-id: sentence": the call cannot be judged
  MatmulCase c;
  MatmulReplay replay;
  // Of D against the exact sums of the factors as they were used (after the cut that explains
  // them), in BiasUnit(c.d_dtype); of the elements that are apart.
  SumErrors errors;
  BoundBreak worst;    // of those beyond the bound, the furthest
  int32_t beyond = 0;  // elements beyond it
  // Of a D in 16 bits and fewer: elements that are neither of the two values next to what f32 sums
  // may give; and how far the choices of the upper one are from what stochastic rounding makes, in
  // standard deviations.
  int32_t beyond_neighbours = 0;
  double stochastic_z = 0;
  double effective_bits = 0;  // -log2 of rms(|D - s| / sum |ab|); infinity: D is exact
  double toward_zero = 0;     // share of inexact elements that are too small
  bool cut = false;           // errors were taken after a cut

  // Of at least eight elements each is this many times its sum, as far as f32 sums are exact, and
  // some are not the sum itself; 0: no such factor.
  double common_factor = 0;

  // No candidate explains the elements, but each is one of the two values next to its sum, above
  // and below it as often as chance would have it.
  bool looks_stochastic() const;
  bool f32_factors() const;
  // D is exact products' sum in fewer bits than it could be: says no rule but precision/split-k.
  bool splits() const { return replay.Proves(NarrowParts); }
  bool cuts() const;  // proved: inputs were cut, and nobody said they would be
  void AddDetails(google::protobuf::Struct& details) const;
};

// Parallel to step.items; null where the item is no matrix product. Products without a sample are
// blocked.
std::vector<std::shared_ptr<const MatmulAnalysis>> AnalyseMatmuls(const SiteStep& step);

// JudgeItems over the step's products: blocked ones are inconclusive, the others are the judge's
// (nullopt: not the rule's concern), whose verdict gets the analysis as its details.
using MatmulJudge = std::function<std::optional<v1::Verdict>(const Item&, const MatmulAnalysis&)>;
void JudgeMatmuls(const SiteStep& step, const MatmulJudge& judge, VerdictSink& out);

}  // namespace plumbline::rules
