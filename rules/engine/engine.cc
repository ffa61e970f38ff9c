#include "rules/engine/engine.h"

#include <utility>

#include "rules/engine/active_rules.h"
#include "rules/engine/batch_check.h"
#include "rules/engine/engine_impl.h"
#include "rules/engine/refused.h"

namespace plumbline::rules {

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineConfig& config,
                                                       OnVerdict on_verdict) {
  auto active = SelectRules(config.rules);
  if (!active.ok()) return active.status();
  for (const std::string& setting : config.settings) {
    if (auto status = ApplySetting(setting, *active); !status.ok()) return status;
  }
  if (!config.roles.empty()) {
    const auto roles = std::make_shared<const SeriesRoles>(config.roles);
    for (ActiveRule& rule : *active) rule.options.SetRoles(roles);
  }
  return std::unique_ptr<Engine>(
      new Engine(std::make_unique<Impl>(std::move(*active), config, std::move(on_verdict))));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

absl::Status Engine::Add(v1::Batch batch) {
  return Add(std::make_shared<const v1::Batch>(std::move(batch)));
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): shared with what the engine keeps
absl::Status Engine::Add(std::shared_ptr<const v1::Batch> batch) {
  if (auto status = CheckBatch(*batch); !status.ok()) return status;
  if (auto status = impl_->sets().Check(*batch); !status.ok()) return status;
  impl_->Add(batch);
  return absl::OkStatus();
}

absl::Status Engine::AddRefused(const v1::Batch& batch) { return Add(WithoutRefused(batch)); }
absl::Status Engine::DeclareSets(const v1::Batch& batch) {
  if (auto status = impl_->sets().Check(batch); !status.ok()) return status;
  impl_->sets().Declare(batch);
  return absl::OkStatus();
}
void Engine::ForgetStream(uint64_t stream_id) { impl_->sets().ForgetStream(stream_id); }
std::vector<uint64_t> Engine::Streams() const { return impl_->sets().Streams(); }
void Engine::SetOnSeries(OnSeries on_series) { impl_->SetOnSeries(std::move(on_series)); }
void Engine::SetSuppressions(std::vector<Suppression> list, int32_t today) {
  impl_->SetSuppressions(std::move(list), today);
}
void Engine::Tell(const std::string& run, const char* rule, v1::Verdict verdict) {
  impl_->Tell(run, rule, std::move(verdict));
}
bool Engine::SuppressionsAre(const std::vector<Suppression>& list, int32_t today) const {
  return impl_->SuppressionsAre(list, today);
}
void Engine::SetOnLate(OnLate on_late) { impl_->SetOnLate(std::move(on_late)); }
void Engine::SetOnLost(OnLost on_lost) { impl_->SetOnLost(std::move(on_lost)); }
void Engine::SetGuard(RunGuard* guard) { impl_->SetGuard(guard); }
void Engine::Expect(const v1::Source& source) { impl_->Expect(source); }
void Engine::Drop(const std::string& run) { impl_->Drop(run); }
void Engine::MakeRoom(const std::string& run, uint64_t bytes) { impl_->MakeRoom(run, bytes); }
void Engine::MakeRulesRoom(const std::string& run, uint64_t bytes) {
  impl_->MakeRulesRoom(run, bytes);
}
void Engine::ForEachName(const std::string& run, const OnName& on_name) const {
  impl_->ForEachName(run, on_name);
}
uint64_t Engine::rule_bytes(const std::string& run) const { return impl_->rule_bytes(run); }
uint64_t Engine::rule_bytes() const { return impl_->rule_bytes(); }
uint64_t Engine::rules_set_aside() const { return impl_->rules_set_aside(); }
void Engine::JudgeEnds(const std::string& run) { impl_->JudgeEnds(run); }
void Engine::MarkGone(const v1::Source& source, LateCause cause, EndKind way) {
  impl_->MarkGone(source, cause, way);
}
void Engine::MarkAbsent(const v1::Source& source) { impl_->MarkAbsent(source); }
void Engine::CloseThrough(const std::string& run, uint32_t attempt, v1::Role role,
                          int64_t through) {
  impl_->CloseThrough(run, attempt, role, through);
}
std::vector<Lag> Engine::Lagging(const std::string& run) const { return impl_->Lagging(run); }
std::vector<std::string> Engine::Runs() const { return impl_->Runs(); }
std::vector<GroupProgress> Engine::Groups(const std::string& run) const {
  return impl_->Groups(run);
}
void Engine::Finish() { impl_->Finish(); }
void Engine::FinishRun(const std::string& run) { impl_->FinishRun(run, true); }
bool Engine::Knows(const std::string& run) const { return impl_->Knows(run); }
std::vector<std::string> Engine::RunsOver() const { return impl_->RunsOver(); }
Coverage Engine::coverage() const { return impl_->coverage(); }
uint64_t Engine::open_bytes(const std::string& run) const { return impl_->open_bytes(run); }
uint64_t Engine::open_bytes() const { return impl_->open_bytes(); }
std::string Engine::LargestRun() const { return impl_->LargestRun(); }
uint64_t Engine::series_left_out(const std::string& run) const {
  return impl_->series_left_out(run);
}
uint64_t Engine::series_left_out() const { return impl_->series_left_out(); }
uint64_t Engine::closed_for_room() const { return impl_->closed_for_room(); }
int64_t Engine::closed_step(const std::string& run) const { return impl_->closed_step(run); }
std::string Engine::Checkpoint() const { return impl_->Checkpoint(); }
void Engine::Checkpoint(const Archive::Sink& sink) const { impl_->Checkpoint(sink); }
absl::Status Engine::Restore(std::string_view bytes) { return impl_->Restore(bytes); }

}  // namespace plumbline::rules
