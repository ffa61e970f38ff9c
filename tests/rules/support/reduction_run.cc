#include <algorithm>
#include <random>

// Simulated reductions as the evidence of a run: the settings, and each rank's record.
#include "base/half.h"
#include "tests/rules/support/simulated_reduction.h"
#include "tests/rules/support/spec_values.h"
#include "tests/support/batches.h"

namespace plumbline::rules::testing {
namespace {

v1::Tensor OffsetTensor(const std::vector<uint64_t>& offsets) {
  v1::Tensor tensor;
  tensor.set_dtype(v1::DTYPE_U64);
  tensor.add_shape(static_cast<int64_t>(offsets.size()));
  tensor.set_data(offsets.data(), offsets.size() * sizeof(uint64_t));
  return tensor;
}

v1::ReductionCall::Op StatedOp(const ReductionSpec& spec) {
  if (spec.op == "max") return v1::ReductionCall::OP_MAX;
  if (spec.op == "avg" || (spec.op.empty() && spec.average != "none"))
    return v1::ReductionCall::OP_AVG;
  return v1::ReductionCall::OP_SUM;
}

void StateOdd(const ReductionSpec& spec, v1::ReductionCall* call) {
  if (spec.odd == "count") call->set_count(call->count() - 64);
  if (spec.odd == "dtype") call->set_wire_dtype(v1::DTYPE_F16);
  if (spec.odd == "op") call->set_op(v1::ReductionCall::OP_MAX);
  if (spec.odd == "root") call->set_root(3);
}

// Returns the result after the damage that the spec defines.
std::vector<double> Damaged(const ReductionSpec& spec, std::vector<double> output, int rank) {
  for (double& y : output) {
    y = RoundToFormat(y * spec.factor, spec.dtype);
    if (spec.clip > 0)
      y = std::clamp(y, -RoundToFormat(spec.clip, spec.dtype),
                     RoundToFormat(spec.clip, spec.dtype));
  }
  for (size_t i = 0; i < static_cast<size_t>(spec.flipped); ++i) output[17 * i] *= -1;
  if (spec.spike != 0) output[5] = RoundToFormat(output[5] * spec.spike, spec.dtype);
  if (rank < 0 || rank != spec.garbage_rank) return output;
  std::mt19937_64 random(99);
  for (double& y : output) {
    const bool hit = std::uniform_real_distribution(0.0, 1.0)(random) < spec.garbage;
    const double other = std::normal_distribution(0.0, 64 * spec.scale)(random);
    if (hit) y = RoundToFormat(other, spec.dtype);
  }
  return output;
}

// Returns one rank's record or, if rank < 0, that of all ranks.
v1::Evidence Record(const ReductionSpec& spec, const ReductionCase& c, int step, int rank) {
  v1::Evidence e;
  e.set_source(rank < 0 ? 0 : static_cast<uint32_t>(rank));
  e.mutable_site()->set_layer(spec.layer);
  e.mutable_site()->set_op(spec.average == "none" ? "sum" : "avg");
  e.set_step(step);
  v1::ReductionCall& call = *e.mutable_reduction()->mutable_call();
  call.set_sequence(static_cast<uint64_t>(step));
  call.set_sequence_known(spec.sequence);
  call.set_op(StatedOp(spec));
  call.set_wire_dtype(static_cast<v1::DType>(spec.dtype));
  call.set_count(c.count);
  call.set_group_size(static_cast<uint32_t>(spec.ranks));
  call.set_group_rank(rank < 0 ? 0 : static_cast<uint32_t>(rank));
  call.set_algorithm(spec.algorithm);
  call.set_prescale(spec.prescale);
  call.set_postscale(spec.postscale);
  for (const uint32_t r : c.ring_order) call.add_ring_order(r);
  if (spec.channels > 1) call.set_channels(c.channels);
  call.set_chunk(c.chunk);
  call.set_variable_count(spec.variable_count);
  if (rank >= 0 && rank == spec.odd_rank) StateOdd(spec, &call);
  if (!spec.sample) return e;
  v1::ReductionSample& sample = *e.mutable_reduction()->mutable_sample();
  const int64_t m = c.samples;
  const DType recorded = spec.before_cast == 0 ? spec.dtype : DType::kF32;
  std::vector<double> inputs = c.inputs;
  for (double& x : inputs) x = x == 0 ? spec.before_cast : x;
  if (rank < 0) {
    *sample.mutable_inputs() = TensorOf(inputs, recorded, {c.ranks, m});
  } else {
    const auto row = inputs.begin() + rank * m;
    *sample.mutable_inputs() = TensorOf({row, row + m}, recorded, {m});
  }
  std::vector<double> output = Damaged(spec, c.output, rank);
  if (rank >= 0 && rank == spec.differing_rank) output[0] *= 2;
  *sample.mutable_output() = TensorOf(output, recorded, {m});
  if (spec.record_offsets) *sample.mutable_offsets() = OffsetTensor(c.offsets);
  return e;
}

// Makes ranks that read the same batch pass in the same values.
void ShareInputs(const ReductionSpec& spec, int step, ReductionCase* c) {
  if (spec.same.empty() || step < spec.same_from) return;
  if (spec.same_not > 0 && step % spec.same_not == spec.same_not - 1) return;
  const auto m = static_cast<int64_t>(c->samples);
  auto first = c->inputs.end();
  for (size_t at = 0; at < spec.same.size();) {
    size_t used = 0;
    const auto row = c->inputs.begin() + std::stoi(spec.same.substr(at), &used) * m;
    if (first == c->inputs.end()) first = row;
    if (spec.same_constant) std::fill(row, row + m, 1.0);
    if (row != first) std::copy(first, first + m, row);
    at += used + 1;
  }
}

}  // namespace

void Set(ReductionSpec& spec, const std::string& key, const std::string& value) {
  SpecFields fields;
  fields.whole = {{"ranks", &spec.ranks},          {"samples", &spec.samples},
                  {"count", &spec.count},          {"start", &spec.start},
                  {"direction", &spec.direction},  {"segment_step", &spec.segment_step},
                  {"group", &spec.group},          {"channels", &spec.channels},
                  {"chunk", &spec.chunk},          {"seed", &spec.seed},
                  {"kinds", &spec.kinds},          {"steps", &spec.steps},
                  {"missing", &spec.missing},      {"meets", &spec.meets},
                  {"flipped", &spec.flipped},      {"garbage_rank", &spec.garbage_rank},
                  {"odd_rank", &spec.odd_rank},    {"same_from", &spec.same_from},
                  {"same_not", &spec.same_not},    {"differing_rank", &spec.differing_rank},
                  {"model_from", &spec.model_from}};
  fields.number = {{"spread", &spec.spread},
                   {"mean", &spec.mean},
                   {"scale", &spec.scale},
                   {"identical", &spec.identical},
                   {"non_finite", &spec.non_finite},
                   {"zeros", &spec.zeros},
                   {"factor", &spec.factor},
                   {"clip", &spec.clip},
                   {"before_cast", &spec.before_cast},
                   {"spike", &spec.spike},
                   {"garbage", &spec.garbage},
                   {"prescale", &spec.prescale},
                   {"postscale", &spec.postscale}};
  fields.flag = {{"flush", &spec.flush},
                 {"declare_order", &spec.declare_order},
                 {"record_offsets", &spec.record_offsets},
                 {"record_count", &spec.record_count},
                 {"whole", &spec.whole},
                 {"sample", &spec.sample},
                 {"sequence", &spec.sequence},
                 {"same_constant", &spec.same_constant},
                 {"variable_count", &spec.variable_count}};
  fields.text = {{"model", &spec.model},         {"average", &spec.average},
                 {"rounding", &spec.rounding},   {"segments", &spec.segments},
                 {"order", &spec.order},         {"odd", &spec.odd},
                 {"algorithm", &spec.algorithm}, {"op", &spec.op},
                 {"layer", &spec.layer},         {"same", &spec.same}};
  fields.dtype = {{"dtype", &spec.dtype}};
  SetField(fields, key, value);
}

v1::Batch ReductionRun(const ReductionSpec& spec) {
  v1::Batch batch;
  const int reporters = spec.whole ? 1 : spec.ranks;
  for (int r = 0; r < reporters; ++r) {
    *batch.add_sources() =
        test::SourceOf("r", static_cast<uint32_t>(r), static_cast<uint32_t>(reporters));
  }
  for (int step = 0; step < spec.steps; ++step) {
    ReductionSpec summed = spec;
    if (step < spec.model_from) summed.model = "fp32";
    ReductionCase c = SimulateReduction(summed, step);
    ShareInputs(spec, step, &c);
    if (spec.whole) *batch.add_evidence() = Record(spec, c, step, -1);
    for (int r = 0; !spec.whole && r < spec.ranks; ++r) {
      if (r != spec.missing || (spec.meets > 0 && step % spec.meets == 0))
        *batch.add_evidence() = Record(spec, c, step, r);
    }
  }
  return batch;
}

}  // namespace plumbline::rules::testing
