// The components of routers.
#pragma once

#include <functional>
#include <vector>

#include "tests/rules/attack/lab.h"

namespace plumbline::rules::attack {

inline size_t S(int64_t i) { return static_cast<size_t>(i); }

// Returns the k best experts of a row, best first, ties by number.
std::vector<int> Best(const double* x, int experts, int k);

// Returns a call with the logits of the rows and no choices.
Call Blank(const Lab& lab, const Rows& rows);
// Dropless: returns the k best of `scores` [T,E]. The recorded scores are the logits of the rows.
Call TopK(const Lab& lab, const Rows& rows, const std::vector<double>& scores);
Call TopK(const Lab& lab, const Rows& rows);
// Returns a call with a map only: 1 if taken(t, e) returns true.
Call Map(const Lab& lab, const Rows& rows, const std::function<bool(int t, int e)>& taken);
// Sets the choices of one row. They are kept until refused.
void Choose(Call& call, int t, const std::vector<int>& experts);
// Sets the map from the kept choices.
void Finish(const Rows& rows, Call& call);

// Returns the capacity of an expert in a pool of `rows` rows.
int64_t Places(const Lab& lab, const Call& call, int64_t rows, int experts);
// Returns `call` with a capacity for the whole call. If an expert is full, later choices are
// refused; order(t, j) defines the priority (lowest first).
using Order = std::function<double(int t, int j, int e)>;
Call Limited(const Lab& lab, const Rows& rows, Call call, const Order& order, const char* policy);
// As Limited, but with one pool per sequence.
Call LimitedBySequence(const Lab& lab, const Rows& rows, Call call, const Order& order,
                       const char* policy);
// Refuses each choice, in queue order, if admit(t, e, held) returns false. `held` is the number of
// accepted choices at e. No capacity is configured.
using Admit = std::function<bool(int t, int j, int e, const std::vector<int64_t>& held)>;
Call Along(const Rows& rows, Call call, const Admit& admit);

// Returns the rows of each sequence by position.
std::vector<std::vector<int>> BySequence(const Rows& rows);
// Returns scores [T,E]. fill(before, t, x) gets the rows before t of its sequence in time order,
// and may change the logits x [E] of t.
using Prefix = std::function<void(const std::vector<int>& before, int t, double* x)>;
std::vector<double> FromPrefix(const Rows& rows, const Prefix& fill);

double Softmax(const Rows& rows, int t, int e);
double Mean(const Rows& rows, int t);
// Returns biases under which the k best of `rows` fill the experts as evenly as possible.
std::vector<double> Balanced(const Rows& rows, int k, int rounds);

}  // namespace plumbline::rules::attack
