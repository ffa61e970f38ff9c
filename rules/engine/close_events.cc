#include "rules/engine/close_events.h"

#include "analysis/processes/processes.h"

namespace plumbline::rules {

LateCause LateCauseOf(v1::RanksGone::Cause cause) {
  switch (cause) {
    case v1::RanksGone::CAUSE_SERVER_AWAY:
      return LateCause::kServerAway;
    case v1::RanksGone::CAUSE_SILENT:
      return LateCause::kRankSilent;
    case v1::RanksGone::CAUSE_NEVER_CAME:
      return LateCause::kNeverCame;
    default:  // also for values that older servers wrote
      return LateCause::kStreamBroken;
  }
}

void ApplyCloses(const v1::JudgeEvent& event, const std::string& run, Engine* engine) {
  const auto wanted = [&](const std::string& name) { return run.empty() || name == run; };
  const auto& unreachable = event.ranks_gone().unreachable();
  for (int i = 0, next = 0; i < event.ranks_gone().sources_size(); ++i) {
    const v1::Source& source = event.ranks_gone().sources(i);
    const bool reachable =
        next >= unreachable.size() || unreachable.Get(next) != static_cast<uint32_t>(i);
    if (!reachable) ++next;
    if (!wanted(source.run())) continue;
    if (event.ranks_gone().cause() == v1::RanksGone::CAUSE_NEVER_CAME) {
      engine->MarkAbsent(source);
    } else {
      // A rank that was silent, or that lost a server which was away, may still be alive.
      const bool broke = event.ranks_gone().cause() == v1::RanksGone::CAUSE_STREAM_BROKEN;
      engine->MarkGone(source, LateCauseOf(event.ranks_gone().cause()),
                       broke && reachable ? EndKind::kGone : EndKind::kUnreachable);
    }
  }
  if (event.has_steps_closed() && wanted(event.steps_closed().run())) {
    const v1::StepsClosed& closed = event.steps_closed();
    engine->CloseThrough(closed.run(), closed.attempt(), closed.role(), closed.through());
  }
  if (event.has_make_room() && wanted(event.make_room().run())) {
    const v1::MakeRoom& room = event.make_room();
    if ((room.bytes() & kOfItsRules) != 0) {
      engine->MakeRulesRoom(room.run(), room.bytes() & ~kOfItsRules);
    } else {
      engine->MakeRoom(room.run(), room.bytes());
    }
  }
  if (event.has_stopped() && wanted(event.stopped().run()))
    engine->Emit(event.stopped().run(), kStepsStoppedRule, StepsStoppedVerdict(event.stopped()));
  if (event.has_ended() && wanted(event.ended().run())) engine->JudgeEnds(event.ended().run());
  if (event.has_run_finished() && wanted(event.run_finished().run()))
    engine->FinishRun(event.run_finished().run());
}

}  // namespace plumbline::rules
