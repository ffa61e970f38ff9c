#include "tests/audit/record_builder.h"

#include <cstdlib>

#include "audit/readers/dumps/reader.h"
#include "base/framed_log.h"
#include "tests/support/batches.h"

namespace plumbline::audit::testing {
namespace {

v1::Source Process(const RecordPlan& plan) {
  return test::SourceOf(plan.run, plan.rank, plan.world_size, plan.attempt);
}

v1::Evidence EvidenceOf(const Dump& dump) {
  const TempFolder dir;
  InputReport report;
  report.path = dir.Write("a.safetensors", dump.File());
  v1::Batch batch;
  if (!SafetensorsReader().Open({&report}).at(0)->Next(&batch) || batch.evidence_size() != 1)
    std::abort();
  return batch.evidence(0);
}

}  // namespace

std::vector<v1::Batch> Batches(const RecordPlan& plan, const Dump& dump) {
  const v1::Evidence evidence = EvidenceOf(dump);
  std::vector<v1::Batch> batches;
  for (int64_t step = plan.first_step; step < plan.first_step + plan.steps; ++step) {
    v1::Batch& batch = batches.emplace_back();
    batch.set_stream_id(plan.stream_id);
    batch.set_sequence(batches.size());
    *batch.add_sources() = Process(plan);
    *batch.add_evidence() = evidence;
    batch.mutable_evidence(0)->set_step(step);
    test::AddProgress(&batch, step)
        .set_finished(plan.finished && step + 1 == plan.first_step + plan.steps);
  }
  return batches;
}

std::string HeaderPayload(const RecordPlan& plan) {
  v1::RecordHeader header;
  header.set_schema("plumbline.record/1");
  header.set_tool_version("test");
  *header.mutable_source() = Process(plan);
  return header.SerializeAsString();
}

std::string FramesFile(const std::vector<std::pair<int, std::string>>& frames) {
  const TempFolder dir;
  const std::string path = dir.File("record");
  auto log = FramedLogWriter::Open(path);
  if (!log.ok()) std::abort();
  for (const auto& [type, payload] : frames) {
    if (!(*log)->Append(static_cast<FrameType>(type), payload).ok()) std::abort();
  }
  return ReadFile(path);
}

std::string RecordFile(const RecordPlan& plan, const std::vector<v1::Batch>& batches) {
  std::vector<std::pair<int, std::string>> frames = {
      {static_cast<int>(FrameType::kRecordHeader), HeaderPayload(plan)}};
  for (const v1::Batch& batch : batches) {
    frames.push_back({static_cast<int>(FrameType::kBatch), batch.SerializeAsString()});
  }
  return FramesFile(frames);
}

std::string RecordFile(const RecordPlan& plan, const Dump& dump) {
  return RecordFile(plan, Batches(plan, dump));
}

}  // namespace plumbline::audit::testing
