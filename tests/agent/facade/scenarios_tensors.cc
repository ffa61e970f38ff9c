// Tensors, reductions and updates across the C ABI.
#include <cstddef>
#include <vector>

#include "tests/agent/facade/scenario_kit.h"

namespace scenario {
namespace {

plumbline_site_t* SiteOf(plumbline_run_t* run, int32_t kind, const char* layer) {
  plumbline_site_t* site = nullptr;
  REQUIRE(plumbline_site(run, kind, layer, nullptr, &site) == PLUMBLINE_OK);
  return site;
}

// [2,3] f32: 1 ... 6.
struct Values {
  float data[6] = {1, 2, 3, 4, 5, 6};
  plumbline::Tensor tensor{data, {2, 3}};
};

}  // namespace

void Tensors() {
  plumbline_run_t* run = Open(2);
  plumbline_site_t* tensor_site = SiteOf(run, PLUMBLINE_KIND_TENSOR, "w");
  plumbline_site_t* reduction_site = SiteOf(run, PLUMBLINE_KIND_REDUCTION, "grads");
  plumbline_site_t* update_site = SiteOf(run, PLUMBLINE_KIND_UPDATE, "w");
  plumbline_site_t* logits_site = SiteOf(run, PLUMBLINE_KIND_LOGITS, "policy");
  plumbline_site_t* matmul_site = SiteOf(run, PLUMBLINE_KIND_MATMUL, "up");
  const Values v;
  plumbline_tensor_t tensor = PLUMBLINE_TENSOR_INIT;
  tensor.values = v.tensor.get();
  tensor.role = "weight";
  tensor.replicas = "dp";
  tensor.target_format = PLUMBLINE_DTYPE_BF16;
  const uint32_t ring[] = {3, 2, 1, 0};
  plumbline_reduction_t reduction = PLUMBLINE_REDUCTION_INIT;
  reduction.op = PLUMBLINE_REDUCE_SUM;
  reduction.input = reduction.output = v.tensor.get();
  reduction.wire_dtype = PLUMBLINE_DTYPE_F16;
  reduction.count = 6;
  reduction.group = "dp";
  reduction.group_rank = 1;
  reduction.group_size = 4;
  reduction.sequence = 7;
  reduction.sequence_known = 1;
  reduction.prescale = 0.25;
  reduction.channels = 2;
  reduction.chunk = 64;
  reduction.ring_order = ring;
  reduction.ring_size = 4;
  reduction.algorithm = "ring";
  reduction.transport = "gloo";
  plumbline_update_t update = PLUMBLINE_UPDATE_INIT;
  update.before = update.after = update.intended = v.tensor.get();
  update.optimizer = "ema";
  update.decay = 0.999;
  plumbline_matmul_t matmul = PLUMBLINE_MATMUL_INIT;
  matmul.a = matmul.b = matmul.d = v.tensor.get();
  matmul.declared_accumulator = PLUMBLINE_DTYPE_F32;
  matmul.library = "cuBLAS 12.4";
  plumbline_logits_t logits = PLUMBLINE_LOGITS_INIT;
  logits.train = logits.rollout = v.tensor.get();
  logits.mode = PLUMBLINE_LOGPROBS_RAW;
  REQUIRE(plumbline_step_begin(run, 1) == PLUMBLINE_OK);
  REQUIRE(plumbline_observe_tensor_if_due(tensor_site, &tensor) == PLUMBLINE_OK);
  REQUIRE(plumbline_observe_reduction_if_due(reduction_site, &reduction) == PLUMBLINE_OK);
  REQUIRE(plumbline_observe_update_if_due(update_site, &update) == PLUMBLINE_OK);
  REQUIRE(plumbline_observe_matmul_if_due(matmul_site, &matmul) == PLUMBLINE_OK);
  REQUIRE(plumbline_observe_logits_if_due(logits_site, &logits) == PLUMBLINE_OK);
  REQUIRE(plumbline_step_begin(run, 2) == PLUMBLINE_OK);
  REQUIRE(plumbline_step_end(run) == PLUMBLINE_OK);
  REQUIRE(plumbline_step_begin(run, 3) == PLUMBLINE_OK);  // the next due step is 4
  REQUIRE(plumbline_observe_tensor_if_due(tensor_site, &tensor) == PLUMBLINE_NOT_DUE);
  REQUIRE(plumbline_observe_reduction(reduction_site, &reduction) == PLUMBLINE_NOT_DUE);
  REQUIRE(plumbline_observe_update(update_site, &update) == PLUMBLINE_NOT_DUE);
  REQUIRE(plumbline_observe_matmul(matmul_site, &matmul) == PLUMBLINE_NOT_DUE);
  REQUIRE(plumbline_observe_logits(logits_site, &logits) == PLUMBLINE_NOT_DUE);
  uint64_t out[4];
  uint32_t n = 9;
  REQUIRE(plumbline_sample_indices(reduction_site, 100, out, 4, &n) == PLUMBLINE_NOT_DUE);
  REQUIRE(n == 0);
  REQUIRE(plumbline_close(run, 60000) == PLUMBLINE_OK);
}

void TensorMistakes() {
  plumbline_run_t* run = Open();
  plumbline_site_t* tensor_site = SiteOf(run, PLUMBLINE_KIND_TENSOR, "w");
  plumbline_site_t* reduction_site = SiteOf(run, PLUMBLINE_KIND_REDUCTION, "w");
  REQUIRE(tensor_site != reduction_site);
  const Values v;
  plumbline_tensor_t tensor = PLUMBLINE_TENSOR_INIT;
  tensor.values = v.tensor.get();
  plumbline_update_t update = PLUMBLINE_UPDATE_INIT;
  uint64_t out[4];
  uint32_t n = 9;
  REQUIRE(plumbline_observe_tensor(tensor_site, &tensor) == PLUMBLINE_FAILED_PRECONDITION);
  REQUIRE(plumbline_sample_indices(reduction_site, 9, out, 4, &n) == PLUMBLINE_FAILED_PRECONDITION);
  REQUIRE(n == 0);
  REQUIRE(!AgentIsLoaded());
  REQUIRE(plumbline_step_begin(run, 1) == PLUMBLINE_OK);
  REQUIRE(plumbline_observe_tensor(nullptr, &tensor) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_observe_tensor(tensor_site, nullptr) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_observe_reduction(reduction_site, nullptr) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_observe_update(nullptr, nullptr) == PLUMBLINE_INVALID_ARGUMENT);
  // A site of another kind.
  REQUIRE(plumbline_observe_update(tensor_site, &update) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(strstr(plumbline_last_error(), "kind is 2; expected 4") != nullptr);
  REQUIRE(plumbline_sample_indices(reduction_site, 9, nullptr, 4, &n) ==
          PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_sample_indices(reduction_site, 9, out, 4, nullptr) ==
          PLUMBLINE_INVALID_ARGUMENT);
  // The agent's own errors reach the caller.
  tensor.values = nullptr;
  REQUIRE(plumbline_observe_tensor(tensor_site, &tensor) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(strstr(plumbline_last_error(), "values") != nullptr);
  // An older caller's struct ends before `replicas`, a newer one is longer.
  tensor.values = v.tensor.get();
  tensor.size = offsetof(plumbline_tensor_t, replicas);
  REQUIRE(plumbline_observe_tensor(tensor_site, &tensor) == PLUMBLINE_OK);
  struct {
    plumbline_tensor_t tensor = PLUMBLINE_TENSOR_INIT;
    uint64_t later = 0;
  } newer;
  newer.tensor.values = v.tensor.get();
  newer.tensor.size = sizeof(newer);
  REQUIRE(plumbline_observe_tensor(tensor_site, &newer.tensor) == PLUMBLINE_OK);
  newer.later = 1;
  REQUIRE(plumbline_observe_tensor(tensor_site, &newer.tensor) == PLUMBLINE_INVALID_ARGUMENT);
  REQUIRE(plumbline_close(run, 60000) == PLUMBLINE_OK);
  REQUIRE(plumbline_observe_tensor(tensor_site, &tensor) == PLUMBLINE_DISABLED);
  REQUIRE(plumbline_sample_indices(reduction_site, 9, out, 4, &n) == PLUMBLINE_DISABLED);
}

// An agent that supports only routing: the other kinds are never due, and report why when they are
// called.
void OlderAgent() {
  plumbline_run_t* run = Open();
  plumbline_site_t* gate = Site(run, "layers.3");
  plumbline_site_t* before = SiteOf(run, PLUMBLINE_KIND_TENSOR, "w");
  REQUIRE(plumbline_step_begin(run, 0) == PLUMBLINE_OK);
  REQUIRE(Observe(gate) == PLUMBLINE_OK);
  plumbline_site_t* after = SiteOf(run, PLUMBLINE_KIND_UPDATE, "w");
  REQUIRE(before->next_due == PLUMBLINE_NEVER);
  REQUIRE(after->next_due == PLUMBLINE_NEVER);
  plumbline_tensor_t tensor = PLUMBLINE_TENSOR_INIT;
  REQUIRE(plumbline_observe_tensor_if_due(before, &tensor) == PLUMBLINE_NOT_DUE);
  REQUIRE(plumbline_step_end(run) == PLUMBLINE_OK);
  REQUIRE(plumbline_together_begin(run) == PLUMBLINE_UNAVAILABLE);
  REQUIRE(plumbline_capture_begin(run, nullptr) == PLUMBLINE_UNAVAILABLE);
  plumbline_marks_t* marks = nullptr;
  REQUIRE(plumbline_marks(run, &marks) == PLUMBLINE_UNAVAILABLE && marks == nullptr);
  REQUIRE(strstr(plumbline_last_error(), "older") != nullptr);
  plumbline_steps_t* steps = nullptr;
  REQUIRE(plumbline_steps(run, nullptr, 0, &steps) == PLUMBLINE_UNAVAILABLE && steps == nullptr);
  REQUIRE(run->step == PLUMBLINE_NO_STEP);
  REQUIRE(plumbline_close(run, 60000) == PLUMBLINE_OK);
}

// The example of plumbline/agent.h.
void CppTensors() {
  plumbline::Run run(plumbline::RunOptions{.run = "cpp", .record = "/nonexistent"});
  const plumbline::Site state = run.TensorSite("layers.3.w", "weight");
  const plumbline::Site update = run.UpdateSite("layers.3.w");
  const plumbline::Site gradients = run.ReductionSite("gradients");
  const float w[6] = {1, 2, 3, 4, 5, 6};
  float g[6] = {1, 2, 3, 4, 5, 6};
  const int64_t rows = 2, columns = 3, n = 6;
  {
    plumbline::Step first(run, 0);
    plumbline::SampledReduction sums(gradients, plumbline::Tensor(g, {n}));
    REQUIRE(sums.Done() == PLUMBLINE_OK);  // a step without samples: only the call
  }
  plumbline::Step step(run, 3);
  const plumbline::Together none(nullptr), together(run.handle());
  const plumbline::Tensor weights(w, {rows, columns});
  REQUIRE(state.ObserveTensor(weights, {.role = "weight", .target_format = PLUMBLINE_DTYPE_BF16}) ==
          PLUMBLINE_OK);
  if (update.Due()) {
    REQUIRE(update.ObserveUpdate({.before = weights, .after = weights, .intended = weights},
                                 {.optimizer = "sgd", .lr = 0.1}) == PLUMBLINE_OK);
  }
  const uint8_t exponents[2] = {120, 130};
  const plumbline::Tensor blocks(exponents, {2, 1});
  REQUIRE(run.MatmulSite("up").ObserveMatmul(
              {.a = weights, .b = weights, .d = weights, .a_scale = blocks, .b_scale = blocks},
              {.input_format = "e4m3",
               .scale = 0.5,
               .scale_format = "e8m0",
               .output_rounding = "stochastic",
               .block = 32,
               .a_tile = 128,
               .b_tile = 2}) == PLUMBLINE_OK);
  plumbline::SampledReduction sums(gradients, plumbline::Tensor(g, {n}));
  for (float& x : g) x *= 2;  // all-reduce, in place
  REQUIRE(sums.Done({.group_size = 8, .group_rank = 1}) == PLUMBLINE_OK);
  const plumbline::Tensor deep(w, {1, 1, 1, 2, 3});
  REQUIRE(deep.get()->ndim == -1);  // refused by name, not read past its end
  plumbline::SampledReduction unknown(run.ReductionSite("deep"), deep);
  REQUIRE(unknown.Done() == PLUMBLINE_OK);  // passed unchanged, so that the agent refuses it
}

}  // namespace scenario
