// Finds the arithmetic that computed a second moment, and whether it can decay. The only header of
// this folder.
#pragma once

#include <cstddef>
#include <vector>

#include "analysis/frame/frame.h"
#include "analysis/sample/sample.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::analysis {

// One way to compute v <- beta2 v + (1 - beta2) g^2 in a dtype.
struct MomentArithmetic {
  const char* name;
  double (*next)(double v, double g, double beta2, DType t);
};

// Sampled elements whose second moment can or must fall.
struct Falling {
  std::vector<size_t> informative;  // elements with a moment above `least`, unless the gradient and
                                    // the change are both 0
  std::vector<size_t> still;        // elements of `informative` whose moment had to fall but did
                                    // not
  size_t all = 0;                   // elements that had to fall
  size_t non_finite = 0;
  bool moved = false;  // some weight or moment changed, so the step was not skipped

  size_t fell() const { return all - still.size(); }
};

// Returns the smallest moment that has an effect. The root of a smaller one is lost next to eps, or
// it underflows.
double LeastMoment(const v1::UpdateConfig& config, DType t);

// Uses moments above `least`.
Falling LookAtMoment(const UpdateCase& c, double least);

struct MomentReplay {
  const MomentArithmetic* arithmetic = nullptr;
  double beta2 = 0;
  size_t still = 0;        // number of unchanged moments that this arithmetic explains
  size_t informative = 0;  // number of elements of Falling::informative that this arithmetic
                           // explains

  double Next(double v, double g, DType t) const { return arithmetic->next(v, g, beta2, t); }
};

// Returns every arithmetic of the update, and how many elements of the record it explains. A beta2
// outside (0, 1) means that it was not declared, so usual values are tried.
std::vector<MomentReplay> MomentReplays(const UpdateCase& c, const Falling& f, double beta2);
const MomentReplay& BestReplay(const std::vector<MomentReplay>& replays);
// Returns true for at least 99 of 100.
bool ReplayExplains(size_t explained, size_t of);

// Returns, over the elements in `f.informative`, how many moments this arithmetic could lower
// without a gradient.
size_t AbleToFall(const UpdateCase& c, const Falling& f, const MomentReplay& r);

}  // namespace plumbline::analysis
