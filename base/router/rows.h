// Reads and judges rows of a tensor of router scores: base/router/scores.h compiled for the widest
// vectors of the processor. The bits are the same on each, since no operation is fused or
// reordered.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/router/scores.h"

namespace plumbline {

// [T,E] scores in host memory, at any alignment; strides in elements.
struct ScoreRows {
  const void* data = nullptr;
  int64_t row = 0;
  int64_t column = 1;
  DType dtype = DType::kF32;
};

// Reads row `row` into x (space for kMaxExperts), scans it and computes its own choice, with values
// and margins. `bias`: rule.experts values, null if none. Thread-safe; scratch, x and choice belong
// to the caller.
RowScale ReadRouterRow(const RouterRule& rule, const ScoreRows& scores, int64_t row,
                       const double* bias, double* x, RouterScratch* scratch, RouterChoice* choice);

// Computes only the choice (ChooseOnly): several times as fast under a softmax.
void ReadRouterChoice(const RouterRule& rule, const ScoreRows& scores, int64_t row,
                      const double* bias, double* x, RouterScratch* scratch, RouterChoice* choice);

// Computes only the row's scale, and scratch->exponential if the row is finite.
RowScale ReadRouterScale(const RouterRule& rule, const ScoreRows& scores, int64_t row, double* x,
                         RouterScratch* scratch);

}  // namespace plumbline
