// What routers are made of.
#pragma once

#include <functional>
#include <vector>

#include "tests/rules/attack/lab.h"

namespace plumbline::rules::attack {

inline size_t S(int64_t i) { return static_cast<size_t>(i); }

// Experts of a row, best first; equal ones by number.
std::vector<int> Best(const double* x, int experts, int k);

// A call that records the rows' own logits and has chosen nothing yet.
Call Blank(const Lab& lab, const Rows& rows);
// Dropless: the k best of `scores` [T,E], recorded as the rows' own logits.
Call TopK(const Lab& lab, const Rows& rows, const std::vector<double>& scores);
Call TopK(const Lab& lab, const Rows& rows);
// Everything that taken(t, e) says, in a map alone.
Call Map(const Lab& lab, const Rows& rows, const std::function<bool(int t, int e)>& taken);
// One row's choices; kept until something refuses them.
void Choose(Call& call, int t, const std::vector<int>& experts);
// Sets the map from the choices that are kept.
void Finish(const Rows& rows, Call& call);

// Places of an expert in a pool of so many rows.
int64_t Places(const Lab& lab, const Call& call, int64_t rows, int experts);
// Configures capacity for the whole call and refuses: order(t, j) says who comes first (lowest).
using Order = std::function<double(int t, int j, int e)>;
Call Limited(const Lab& lab, const Rows& rows, Call call, const Order& order, const char* policy);
// The same with a pool a sequence.
Call LimitedBySequence(const Lab& lab, const Rows& rows, Call call, const Order& order,
                       const char* policy);
// Refuses each choice that admit(t, e, held) does not let in, along the queue; `held` are the
// places taken at e. No capacity is configured.
using Admit = std::function<bool(int t, int j, int e, const std::vector<int64_t>& held)>;
Call Along(const Rows& rows, Call call, const Admit& admit);

// Rows of each sequence by position.
std::vector<std::vector<int>> BySequence(const Rows& rows);
// scores [T,E]: fill(before, t, x) sees the rows before t of its sequence, in time order, and may
// change t's logits x [E].
using Prefix = std::function<void(const std::vector<int>& before, int t, double* x)>;
std::vector<double> FromPrefix(const Rows& rows, const Prefix& fill);

double Softmax(const Rows& rows, int t, int e);
double Mean(const Rows& rows, int t);
// Biases under which the k best of `rows` fill experts as evenly as can be.
std::vector<double> Balanced(const Rows& rows, int k, int rounds);

}  // namespace plumbline::rules::attack
