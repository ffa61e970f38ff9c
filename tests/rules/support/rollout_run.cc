// Simulated rollouts as the evidence of probes and readers.
#include <algorithm>
#include <cmath>

#include "tests/rules/support/simulated_rollout.h"

namespace plumbline::rules::testing {
namespace {

template <typename Field>
v1::Tensor Floats(const RolloutSequence& s, DType dtype, Field field) {
  std::vector<double> values;
  for (const RolloutToken& t : s.tokens) values.push_back(t.*field);
  return TensorOf(values, dtype, {static_cast<int64_t>(values.size())});
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

// Returns choices of 2 of 16 experts. If they flipped, the trainer's second choice differs.
v1::Evidence Routed(const RolloutSimulator& simulator,
                    const std::vector<RolloutSequence>& sequences, bool train) {
  v1::Evidence e;
  v1::Routing& routing = *e.mutable_routing();
  routing.mutable_config()->set_experts(16);
  routing.mutable_config()->set_top_k(2);
  std::string experts, ids, positions;
  int64_t rows = 0;
  const auto append = [](int64_t value, std::string* to) {
    to->append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (size_t i = 0; i < sequences.size(); ++i) {
    for (size_t k = 0; k < sequences[i].tokens.size(); ++k, ++rows) {
      const RolloutToken& t = sequences[i].tokens[k];
      const int64_t first = t.token % 16;
      append(first, &experts);
      append((first + (train && simulator.Flipped(i, k) ? 2 : 1)) % 16, &experts);
      append(static_cast<int64_t>(i), &ids);
      append(t.position, &positions);
    }
  }
  const auto put = [&](std::string bytes, int64_t columns, v1::Tensor* tensor) {
    tensor->set_dtype(v1::DTYPE_I64);
    tensor->add_shape(rows);
    if (columns > 1) tensor->add_shape(columns);
    tensor->set_data(std::move(bytes));
  };
  put(std::move(experts), 2, routing.mutable_sample()->mutable_topk_indices());
  put(std::move(ids), 1, routing.mutable_sample()->mutable_sequence_id());
  put(std::move(positions), 1, routing.mutable_sample()->mutable_position());
  e.set_sample_size(static_cast<uint64_t>(rows));
  e.set_exercised(v1::EXERCISED_YES);
  return e;
}

// Adds a trainer for each attempt, and a rollout process if one sends something.
void AddProcesses(const RolloutSpec& spec, v1::Batch* batch) {
  const int attempts =
      spec.restart_every > 0 ? (spec.steps + spec.restart_every - 1) / spec.restart_every : 1;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    AddTrainer(0, 1, batch);
    v1::Source trainer = batch->sources(batch->sources_size() - 1);
    trainer.set_attempt(static_cast<uint32_t>(attempt));
    *batch->mutable_sources(batch->sources_size() - 1) = trainer;
    trainer.set_role(v1::ROLE_ROLLOUT);
    if (spec.halves || spec.routing) *batch->add_sources() = trainer;
  }
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
  if (spec.behaviour) {
    *m->mutable_behaviour()->mutable_logprobs() =
        Floats(s, spec.decimals >= 0 ? DType::kF64 : DType::kF32, &RolloutToken::behaviour);
  }
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
  AddProcesses(spec, &batch);
  const uint32_t roles = spec.halves || spec.routing ? 2 : 1;
  for (int step = spec.first_step; step < spec.first_step + spec.steps; ++step) {
    const int attempt = spec.restart_every > 0 ? (step - spec.first_step) / spec.restart_every : 0;
    const uint32_t trainer = static_cast<uint32_t>(attempt) * roles;
    if (spec.logits) {
      v1::Evidence e;
      *e.mutable_logits() = simulator.LogitsOf(step);
      e.set_sample_size(static_cast<uint64_t>(e.logits().rows_size()));
      AddEvidence(trainer, "logits", step, std::move(e), &batch);
      continue;
    }
    const std::vector<RolloutSequence> sequences = simulator.Step(step);
    for (const uint32_t role : {0u, 1u}) {
      if (!spec.routing) break;
      AddEvidence(trainer + role, "routing", step, Routed(simulator, sequences, role == 0), &batch);
      batch.mutable_evidence(batch.evidence_size() - 1)->mutable_site()->set_layer("layers.0");
    }
    if (!spec.halves) {
      AddEvidence(trainer, "logprobs", step, Sequences(spec, sequences, RolloutHalf::kBoth),
                  &batch);
      continue;
    }
    AddEvidence(trainer, "logprobs", step, Sequences(spec, sequences, RolloutHalf::kTrain), &batch);
    AddEvidence(trainer + 1, "logprobs", step, Sequences(spec, sequences, RolloutHalf::kRollout),
                &batch);
  }
  return batch;
}

}  // namespace plumbline::rules::testing
