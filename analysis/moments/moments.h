// Which arithmetic computed a second moment, and can it decay? The room's entry and its only
// header.
#pragma once

#include <cstddef>
#include <vector>

#include "analysis/frame/frame.h"
#include "analysis/sample/sample.h"
#include "plumbline/v1/evidence.pb.h"

namespace plumbline::rules {

// One way to compute v <- beta2 v + (1 - beta2) g^2 in a dtype.
struct MomentArithmetic {
  const char* name;
  double (*next)(double v, double g, double beta2, DType t);
};

// The sampled elements, by what they can tell.
struct Falling {
  std::vector<size_t> telling;  // a moment that matters, part of the step
  std::vector<size_t> still;    // of these, it had to fall and did not
  size_t all = 0;               // had to fall
  size_t non_finite = 0;
  bool moved = false;  // some weight or moment did: the step was not skipped

  size_t fell() const { return all - still.size(); }
};

// Below it nobody sees a moment: its root is lost beside eps, or it underflows.
double LeastMoment(const v1::UpdateConfig& config, DType t);

// Of moments above `least`.
Falling LookAtMoment(const UpdateCase& c, double least);

struct MomentReplay {
  const MomentArithmetic* arithmetic = nullptr;
  double beta2 = 0;
  size_t still = 0;    // of those that stood still it explains so many
  size_t telling = 0;  // of all that tell

  double Next(double v, double g, DType t) const { return arithmetic->next(v, g, beta2, t); }
};

// Every way to compute the update, and how much of what was recorded it explains. A beta2 outside
// (0, 1) was not said: customary ones are tried.
std::vector<MomentReplay> MomentReplays(const UpdateCase& c, const Falling& f, double beta2);
const MomentReplay& BestReplay(const std::vector<MomentReplay>& replays);
// At least 99 of 100.
bool ReplayExplains(size_t explained, size_t of);

// Of the telling elements, how many moments this arithmetic could lower without a gradient.
size_t AbleToFall(const UpdateCase& c, const Falling& f, const MomentReplay& r);

}  // namespace plumbline::rules
