// Simulated optimizer updates, healthy or with an injected loss: the injector of the update rules.
#pragma once

#include <string>

#include "plumbline/v1/batch.pb.h"
#include "tests/rules/support/spec_values.h"

namespace plumbline::rules::testing {

struct UpdateRunSpec {
  int layers = 1;  // layers.0.w, layers.1.w, ..., each with its own values
  int elements = 4096;
  int ranks = 1;
  int steps = 1;
  int max_samples = 4096;
  DType dtype = DType::kBF16;
  double weight_sd = 0.02;
  double weight = 0;  // mean
  double step_sd = 1e-5;
  double moving = 1;  // share of elements that are intended to move
  // nearest, toward-zero, down, stochastic, skipped (nothing is applied), master (the values are a
  // rounded copy of a moving fp32 master), wrong (a change other than the intended one)
  std::string rounding = "nearest";
  bool resumed = false;  // the master has moved before
  std::string optimizer = "adamw";
  double lr = NAN, beta2 = NAN, eps = NAN, decay = NAN;
  DType eps_dtype = DType::kUnspecified;
  // optimizer ema: p - e is `apart` * |e| * normal, intended (1 - decay)(p - e)
  double apart = 0.05;
  int update_every = 1;  // steps between the updates of an average
  // Second moments: v = moment * (1 + moment_spread * (uniform - 1/2)), g = gradient_mean +
  // gradient_sd * normal.
  bool moments = false;
  bool gradient = true;
  bool describe_beta2 = true;
  DType moment_dtype = DType::kBF16;
  double moment = 1;
  double moment_spread = 1;
  double gradient_mean = 0;
  double gradient_sd = 0.5;
  // fused, multiply-add, each, float, stochastic, lazy, skipped, half-skipped, amsgrad
  std::string arithmetic = "fused";
  bool finite_steps = false;  // intended stays finite if the moment is zero
  int poison_every = 0;       // every n-th element is NaN in before, +Inf in gradient
  bool sample = true;
  int seed = 1;
};

void Set(UpdateRunSpec& spec, const std::string& key, const std::string& value);

// Returns one batch with every rank, step and layer, op "update". Weights carry over from step to
// step.
v1::Batch UpdateRun(const UpdateRunSpec& spec);

}  // namespace plumbline::rules::testing
