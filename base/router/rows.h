// Rows of a tensor of router scores, read and judged: base/router/scores.h compiled for the widest
// vectors that the processor has. Same bits on each, since no operation is fused or reordered.
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

// Reads row `row` into x (room for kMaxExperts), scans it and makes its own choice, values and
// margins included. `bias`: rule.experts values, null without one. Thread-safe; scratch, x and
// choice are the caller's own.
RowScale ReadRouterRow(const RouterRule& rule, const ScoreRows& scores, int64_t row,
                       const double* bias, double* x, RouterScratch* scratch, RouterChoice* choice);

// The same choice alone (ChooseOnly): several times as fast under a softmax.
void ReadRouterChoice(const RouterRule& rule, const ScoreRows& scores, int64_t row,
                      const double* bias, double* x, RouterScratch* scratch, RouterChoice* choice);

// The row's scale alone, and scratch->exponential where the row is finite.
RowScale ReadRouterScale(const RouterRule& rule, const ScoreRows& scores, int64_t row, double* x,
                         RouterScratch* scratch);

}  // namespace plumbline
