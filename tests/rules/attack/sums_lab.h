// Parts of the attack on sums: arithmetics, addends, and the innocent ways to reduce that every
// detector of sums must leave alone.
#pragma once

#include <functional>
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "analysis/collective/collective.h"
#include "tests/rules/attack/collective_families.h"

namespace plumbline::rules::testing {

using SumValues = std::vector<double>;

double Rounded(double x, DType t, RoundingMode mode = RoundingMode::kNearestEven);
double Total(const SumValues& x);

// Orders of the ranks 0 to n - 1: ascending from `first`, or any.
std::vector<int> OrderFrom(int n, int first);
std::vector<int> AnyOrder(int n, Dice& dice);
// Returns the sequential sum in that order with partial sums in `t`.
double ChainOf(const SumValues& x, const std::vector<int>& rows, DType t);

// Returns a call without results: noise, or a common part with a deviation of 0.3.
Recorded Addends(Dice& dice, std::initializer_list<int> ranks, std::initializer_list<DType> types);
// Returns the sum, divided if the call is an average, as it is stored.
double Stored(double sum, const Recorded& call);

using EachRank =
    std::function<double(const SumValues& x, const Recorded& call, int rank, int column)>;
// Fills the results of every rank.
void FillOutputs(Recorded& call, const EachRank& result);

// Returns a call with addends and without results.
using Drawing = std::function<Recorded(Dice& dice)>;
// Returns the innocent ways to reduce what `draw` returns: orders, casts, averages in stages,
// inputs scaled before the sum, stochastic rounding, error feedback, declared compression, padding.
std::vector<ArithmeticFamily> OrdinaryReductions(const Drawing& draw);

// Judges recordings of each family: 500 if PLUMB_LONG is set, else `quick`. PLUMB_FAMILY selects a
// family by name, PLUMB_SEED makes other recordings.
// Expects that at least 95 % have a finding of the family's rule, with the cause (unless empty).
void ExpectFound(const std::vector<ArithmeticFamily>& families, const std::string& cause,
                 int quick);
// Expects no finding from level warning on, except those whose cause or rule is in `but`. If
// PLUMB_LONG is set, judges 20 of each family: replays take most of the time.
void ExpectSilent(const std::vector<ArithmeticFamily>& families, const std::set<std::string>& but,
                  int quick);

// The same for these rules alone, in all recordings.
void ExpectSilentOf(const std::vector<std::string>& rules,
                    const std::vector<ArithmeticFamily>& families, int quick);

// Expects no finding of precision/collective-sum with one of these causes.
void ExpectWithoutCause(const std::vector<ArithmeticFamily>& families,
                        const std::set<std::string>& causes, int quick);

// Returns true if a detector accuses the call, which the rule may ask or not.
using Detector =
    std::function<bool(const analysis::JoinedReduction& joined, const analysis::ReductionCase& c)>;
// Expects that the detector alone accuses no call. Calls that cannot be decoded are left out.
void ExpectUndetected(const std::vector<ArithmeticFamily>& families, const Detector& detector,
                      int quick);

}  // namespace plumbline::rules::testing
