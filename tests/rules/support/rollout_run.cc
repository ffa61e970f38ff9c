// Simulated rollouts as the evidence that probes and readers make of them.
#include <algorithm>
#include <cmath>

#include "tests/rules/support/simulated_rollout.h"

namespace plumbline::rules::testing {
namespace {

template <typename Field>
v1::Tensor Floats(const RolloutSequence& s, DType dtype, Field field) {
  std::vector<double> values;
  for (const RolloutToken& t : s.tokens) values.push_back(t.*field);
  v1::Tensor tensor;
  tensor.set_dtype(static_cast<v1::DType>(dtype));
  tensor.add_shape(static_cast<int64_t>(values.size()));
  *tensor.mutable_data() = std::move(Stored(values, dtype).bytes());
  return tensor;
}

template <typename Field>
v1::Tensor Integers(const RolloutSequence& s, Field field) {
  v1::Tensor tensor;
  tensor.set_dtype(v1::DTYPE_I64);
  tensor.add_shape(static_cast<int64_t>(s.tokens.size()));
  for (const RolloutToken& t : s.tokens) {
    const int64_t value = t.*field;
    tensor.mutable_data()->append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return tensor;
}

void FillSide(const RolloutSpec& spec, const RolloutSequence& s, bool train,
              v1::LogprobsSide* side) {
  // Text gives doubles, probes give floats.
  const DType dtype = spec.decimals >= 0 ? DType::kF64 : DType::kF32;
  *side->mutable_logprobs() =
      Floats(s, dtype, train ? &RolloutToken::train : &RolloutToken::rollout);
  if (train ? spec.entropy : spec.rollout_entropy) {
    *side->mutable_entropy() =
        Floats(s, dtype, train ? &RolloutToken::train_entropy : &RolloutToken::rollout_entropy);
  }
  if (train ? spec.varentropy : spec.rollout_varentropy) {
    *side->mutable_varentropy() = Floats(
        s, dtype, train ? &RolloutToken::train_varentropy : &RolloutToken::rollout_varentropy);
  }
  if (spec.decimals >= 0) side->set_decimals(static_cast<uint32_t>(spec.decimals));
}

void FillOfRollout(const RolloutSpec& spec, const RolloutSequence& s, v1::LogprobsSequence* m) {
  FillSide(spec, s, false, m->mutable_rollout());
  if (spec.versions_recorded) *m->mutable_weight_versions() = Integers(s, &RolloutToken::version);
  m->set_mode(s.mode);
  if (spec.declared) {
    m->set_temperature(s.temperature);
    m->set_top_p(s.top_p);
    m->set_top_k(s.top_k);
  }
  m->set_worker(s.worker);
  m->set_selection(s.selection);
  if (spec.kept_share > 0) m->set_kept_share(s.kept_share);
  m->set_source(s.source);
  if (spec.rescore_k2 > 0) m->set_rescore_k2(s.rescore_k2);
  m->set_t_start(s.t_start);
  m->set_t_end(s.t_end);
  m->set_cached_tokens(s.cached_tokens);
}

void FillOfTrain(const RolloutSpec& spec, const RolloutSequence& s, v1::LogprobsSequence* m) {
  FillSide(spec, s, true, m->mutable_train());
  if (spec.versions_recorded) m->set_train_version(s.train_version);
  if (spec.advantages) *m->mutable_advantages() = Floats(s, DType::kF32, &RolloutToken::advantage);
}

v1::Evidence Sequences(const RolloutSpec& spec, const std::vector<RolloutSequence>& sequences,
                       RolloutHalf half) {
  v1::Evidence e;
  for (int epoch = 0; epoch < spec.epochs; ++epoch) {
    for (const RolloutSequence& s : sequences) {
      auto& m = *e.mutable_logprobs()->add_sequences();
      m = SequenceMessage(spec, s, half);
      if (epoch > 0 && m.has_train_version()) m.set_train_version(m.train_version() + epoch);
      e.mutable_logprobs()->set_tokens_seen(e.logprobs().tokens_seen() + s.tokens.size());
      e.set_sample_size(e.sample_size() + s.judged);
    }
  }
  e.mutable_logprobs()->set_sequences_seen(static_cast<uint64_t>(e.logprobs().sequences_size()));
  return e;
}

void AddEvidence(uint32_t source, const char* op, int step, v1::Evidence e, v1::Batch* batch) {
  e.set_source(source);
  e.mutable_site()->set_layer("policy");
  e.mutable_site()->set_op(op);
  e.set_step(step);
  *batch->add_evidence() = std::move(e);
}

}  // namespace

v1::LogprobsSequence SequenceMessage(const RolloutSpec& spec, const RolloutSequence& s,
                                     RolloutHalf half) {
  v1::LogprobsSequence m;
  m.set_id(s.id);
  m.set_length(s.tokens.size());
  if (spec.ids) *m.mutable_tokens() = Integers(s, &RolloutToken::token);
  if (spec.mask_every > 0) {
    for (const RolloutToken& t : s.tokens) m.mutable_mask()->push_back(t.judged ? 1 : 0);
  }
  if (half != RolloutHalf::kTrain) FillOfRollout(spec, s, &m);
  if (half != RolloutHalf::kRollout) FillOfTrain(spec, s, &m);
  return m;
}

v1::Batch RolloutRun(const RolloutSpec& spec) {
  RolloutSimulator simulator(spec);
  v1::Batch batch;
  AddTrainer(0, 1, &batch);
  if (spec.halves) {
    v1::Source& rollout = *batch.add_sources();
    rollout = batch.sources(0);
    rollout.set_role(v1::ROLE_ROLLOUT);
  }
  for (int step = spec.first_step; step < spec.first_step + spec.steps; ++step) {
    if (spec.logits) {
      v1::Evidence e;
      *e.mutable_logits() = simulator.LogitsOf(step);
      e.set_sample_size(static_cast<uint64_t>(e.logits().rows_size()));
      AddEvidence(0, "logits", step, std::move(e), &batch);
      continue;
    }
    const std::vector<RolloutSequence> sequences = simulator.Step(step);
    if (!spec.halves) {
      AddEvidence(0, "logprobs", step, Sequences(spec, sequences, RolloutHalf::kBoth), &batch);
      continue;
    }
    AddEvidence(0, "logprobs", step, Sequences(spec, sequences, RolloutHalf::kTrain), &batch);
    AddEvidence(1, "logprobs", step, Sequences(spec, sequences, RolloutHalf::kRollout), &batch);
  }
  return batch;
}

}  // namespace plumbline::rules::testing
