// The analysis of one sampled call for the matrix product rules, computed once per step.
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

namespace plumbline::analysis {

// An element that exceeds every error that f32 accumulation can make: |D - s| > ulp(D)/2 (16-bit D
// only) + (K+1) 2^-24 sum |ab| (Higham 2002, section 3.1).
struct BoundBreak {
  int sample = -1;  // recorded number; -1 if there is none
  double d = 0;
  double exact = 0;
  double bound = 0;
  double excess() const;  // |d - exact| / bound
};

struct MatmulAnalysis {
  std::string blocked;  // "short-id: sentence" if the call cannot be judged
  MatmulCase c;
  MatmulReplay replay;
  // Errors of D against the exact sums of the factors as they were used (after the cut that
  // explains them), in BiasUnit(c.d_dtype), over the elements whose errors are independent.
  SumErrors errors;
  BoundBreak worst;    // the furthest outside the bound
  int32_t beyond = 0;  // number of elements outside it
  // For a D in 16 bits or fewer. beyond_neighbours: elements that are neither of the two values
  // next to what f32 sums may give. stochastic_z: how far the choices of the upper value deviate
  // from stochastic rounding, in standard deviations.
  int32_t beyond_neighbours = 0;
  double stochastic_z = 0;
  double effective_bits = 0;  // -log2 of rms(|D - s| / sum |ab|); infinity if D is exact
  double toward_zero = 0;     // share of inexact elements that are too small
  bool cut = false;           // errors were computed after a cut

  // At least eight elements are each this multiple of their sum, within the accuracy of f32 sums,
  // and some differ from the sum itself. 0 if there is no such factor.
  double common_factor = 0;

  // True if no candidate explains the elements, but each is one of the two values next to its sum,
  // above and below it as often as expected by chance.
  bool looks_stochastic() const;
  bool f32_factors() const;
  // True if D is the sum of exact products in fewer bits than possible. Only precision/split-k
  // reports this.
  bool splits() const { return replay.Proves(NarrowParts); }
  bool cuts() const;  // proved: inputs were cut without a declaration
  void AddDetails(google::protobuf::Struct& details) const;
};

// Returns analyses parallel to step.items; null if the item is not a matrix product. If a product
// has no sample, it is blocked.
std::vector<std::shared_ptr<const MatmulAnalysis>> AnalyseMatmuls(const SiteStep& step);

// Calls JudgeItems over the step's products. Blocked ones are inconclusive. The others get the
// judge's verdict (nullopt: the rule does not apply) with the analysis as details.
using MatmulJudge = std::function<std::optional<v1::Verdict>(const Item&, const MatmulAnalysis&)>;
void JudgeMatmuls(const SiteStep& step, const MatmulJudge& judge, VerdictSink& out);

}  // namespace plumbline::analysis
