// The share of a run's false-alarm budget that one stream gets. It depends on nothing but (rule,
// layer, op), so that neither arrival order nor other streams move it, and the shares of every
// possible set of streams sum to at most the budget.
//
// How. A weight is the product of three probabilities w(rule) w(op) w(layer), each a
// sub-probability over *all* strings, so that the sum over any set of triples is at most 1. Such a
// probability is the chance that a fixed random writer writes exactly this string:
// - with probability 1/2 it takes a known name from a table, whose shares sum to at most 1; a
//   layer's table holds shapes like "layers.#", where # stands for a number l with probability
//   6 / (pi^2 (l + 1)^2), as sum 1 / (l + 1)^2 over l >= 0 is pi^2 / 6;
// - with probability 1/2 it spells the string in tokens (words common in layer names, separators,
//   numbers by the law above, single bytes) until it stops, and each token and the stop have fixed
//   probabilities that sum to at most 1. A string's chance is counted for one spelling, the
//   greedy one. Two strings have two spellings, and spellings that end in a stop are no prefixes of
//   each other, so by Kraft's inequality their chances sum to at most 1.
// Where a string has both a table entry and a spelling, the table's chance is taken: less than the
// writer's total, so the sum still holds. Numbers with leading zeros or more than nine digits are
// spelt by bytes.
//
// "layers.3" has weight 1/2 * 1/16 * 6 / (16 pi^2) = 1.2e-3, and in all ln 1/alpha = 27;
// "model.layers.12.self_attn.q_proj" 2e-24 and 75: four times the samples that 1e-6 would need.
// A rule with several streams a site (ranks, roles) splits what it gets among them.
// Pure, thread-safe.
#pragma once

#include <string_view>

#include "plumbline/v1/evidence.pb.h"

namespace plumbline::rules {

inline constexpr double kRunAlpha = 1e-6;

// The three factors, each in [0, 1): 0 for names of several hundred bytes, whose streams then never
// alarm.
double RuleWeight(std::string_view rule);
double OpWeight(std::string_view op);
double LayerWeight(std::string_view layer);

// run_alpha * w(rule) * w(op) * w(layer).
double AlphaOf(std::string_view rule, const v1::Site& site, double run_alpha = kRunAlpha);

}  // namespace plumbline::rules
