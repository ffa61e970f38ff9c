// Sends recorded faults as agents would, so that a server judges the contents of files:
//
//   fault_feeder SERVER RUN=FOLDER...     prints "ready" when all is taken; ends with its input
//
// Each folder is one run; its files are read as plumb audit reads them.
#include <algorithm>
#include <cstdio>
#include <iostream>

#include "audit/session/inputs.h"
#include "tests/server/web/page_run.h"

namespace plumbline::test {
namespace {

// The contents of one source of a folder, in order.
struct Reported {
  std::vector<v1::Source> processes;
  std::vector<v1::Batch> batches;
};

Reported ReadAll(audit::Source& source, const std::string& run) {
  Reported reported;
  int64_t newest = 0;
  for (v1::Batch batch; source.Next(&batch); batch.Clear()) {
    for (v1::Source& one : *batch.mutable_sources()) {
      one.set_run(run);
      const bool known = std::any_of(
          reported.processes.begin(), reported.processes.end(), [&](const v1::Source& other) {
            return other.rank() == one.rank() && other.role() == one.role();
          });
      if (!known) reported.processes.push_back(one);
    }
    for (const v1::Evidence& one : batch.evidence()) newest = std::max(newest, one.step());
    reported.batches.push_back(batch);
  }
  // At the end of the files their processes end, so that rules which wait for the run's end report.
  v1::Batch last;
  for (const v1::Source& process : reported.processes) {
    *last.add_sources() = process;
    v1::Progress& progress = AddProgress(&last, newest);
    progress.set_source(static_cast<uint32_t>(last.sources_size() - 1));
    progress.set_finished(true);
  }
  reported.batches.push_back(std::move(last));
  return reported;
}

bool Send(const Channel& channel, uint64_t* stream, const std::string& run,
          const std::string& folder, std::vector<std::unique_ptr<AgentStream>>* keep) {
  const auto inputs = audit::FindInputs({folder}, nullptr);
  for (const auto& set : inputs.sets) {
    for (auto& source : set.reader->OpenWith(set.files, {})) {
      Reported reported = ReadAll(*source, run);
      if (reported.processes.empty()) continue;
      auto agent = std::make_unique<AgentStream>(channel, ++*stream, reported.processes);
      uint64_t sequence = 0;
      for (v1::Batch& batch : reported.batches) agent->Send(std::move(batch), ++sequence);
      if (!agent->Acknowledged(sequence)) return false;
      keep->push_back(std::move(agent));
    }
  }
  return true;
}

int Main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "fault_feeder SERVER RUN=FOLDER...\n");
    return 2;
  }
  const Channel channel = grpc::CreateChannel(argv[1], grpc::InsecureChannelCredentials());
  std::vector<std::unique_ptr<AgentStream>> agents;
  uint64_t stream = 500;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t equals = word.find('=');
    if (!Send(channel, &stream, word.substr(0, equals), word.substr(equals + 1), &agents)) {
      std::fprintf(stderr, "fault_feeder: %s was not taken\n", word.c_str());
      return 1;
    }
  }
  std::printf("ready\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) continue;
  return 0;
}

}  // namespace
}  // namespace plumbline::test

int main(int argc, char** argv) { return plumbline::test::Main(argc, argv); }
