// Golden cases: tests/rules/<group>/<name>/*.case, each an input and the expected verdict.
//
//   # what the case shows
//   [set]                    optional: settings, RULE.OPTION=VALUE
//   [suppress]               optional: a file of suppressions, judged on 2026-06-01
//   [router]                 a reference router on random scores (support/synthetic_routing.h)
//   policy = score-capacity
//   [attack]                 or: a router of the attack (attack/case.h)
//   [mixture]                or: a layer's summaries over many steps (support/mixture_run.h)
//   [routing-pair]           or: training's and inference's routing (support/routing_pair.h)
//   [accumulation]           or: running sums of gradients (support/accumulation_run.h)
//   [gradients]              or: own and applied gradients (support/applied_gradients.h)
//   [update]                 or: optimizer updates (support/update_run.h)
//   [tensor]                 or: tensors of a model (support/tensor_run.h)
//   [reduction]              or: collectives (support/simulated_reduction.h)
//   [matmul]                 or: matrix products (support/matmul_run.h)
//   [series]                 or: series of scalars, by lines of text (support/series_run.h)
//   [logprobs]               or: sampled tokens, both sides (support/simulated_rollout.h)
//   [scalars]                or: a loss over steps, a rate, an evaluation (support/scalar_run.h)
//   [job]                    or: traces of ranks that train together (support/simulated_job.h)
//   [flight]                 or: flight recorders of ranks (support/simulated_flight.h)
//   [hung]                   or: processes that hang, in protobuf text format
//   [batch]                  or: batches in protobuf text format, separated by lines of ---
//   [expect]
//   ...
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "plumbline/v1/batch.pb.h"
#include "rules/engine/engine.h"

namespace plumbline::rules::testing {

struct GoldenCase {
  std::filesystem::path path;
  std::string input_kind;  // name of the section: "router", "mixture", ..., "batch"
  std::string head;        // everything up to and including the [expect] line
  std::string input;
  std::string expect;
  std::vector<std::string> settings;
  std::string suppressions;
};
// Returns the engine configuration for a case. Throws std::runtime_error if its suppressions are
// invalid.
EngineConfig ConfigOf(const GoldenCase& c);

// Returns every case of a rule, by name. If there is none, returns an empty vector. `source` is the
// source tree.
std::vector<GoldenCase> GoldenCases(const std::filesystem::path& source, const std::string& rule);
GoldenCase ParseGoldenCase(const std::filesystem::path& path);

// Feeds the case to the engine. Throws std::runtime_error if the case is malformed. Returns errors
// of the engine as text.
std::string Feed(const GoldenCase& c, Engine* engine);
// Returns the case's batches, without engine events ([hung]). Throws std::runtime_error if the case
// is malformed.
std::vector<v1::Batch> InputOf(const GoldenCase& c);

}  // namespace plumbline::rules::testing
