#include "audit/readers/flight_recorder/reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "audit/readers/flight_recorder/dump.h"
#include "audit/readers/input/byte_stream.h"
#include "audit/readers/input/file.h"
#include "audit/readers/input/line_reader.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostDumpBytes = 64u << 20;
constexpr int64_t kMostDumpRank = (1 << 17) - 1;

// Returns "dump-12" for "dir/dump-12.pickle".
std::string_view NameOf(std::string_view path) {
  std::string_view name = path.substr(path.rfind('/') + 1);
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view ending :
         {".gz", ".zst", ".json", ".pkl", ".pickle", ".dump", ".pt"}) {
      if (!name.ends_with(ending)) continue;
      name.remove_suffix(ending.size());
      again = true;
    }
  }
  return name;
}

// Returns the number at the end of the name: "nccl_trace_rank_3", "dump-12.pickle"; -1 if there is
// none.
int64_t RankAtEnd(std::string_view path) {
  const std::string_view name = NameOf(path);
  size_t begin = name.size();
  while (begin > 0 && name[begin - 1] >= '0' && name[begin - 1] <= '9') --begin;
  if (begin == name.size() || name.size() - begin > 6) return -1;
  const int64_t rank = std::stoll(std::string(name.substr(begin)));
  return rank <= kMostDumpRank ? rank : -1;
}

// Returns "nccl_trace_rank_" for "dir/nccl_trace_rank_3".
std::string_view Stem(std::string_view path) {
  const std::string_view name = NameOf(path);
  return name.substr(0, name.find_last_not_of("0123456789") + 1);
}

std::string_view FolderOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? std::string_view() : path.substr(0, slash);
}

// Returns the nanoseconds from the launch of the oldest pending operation to the modification time
// of the file, by the clocks of two hosts. If no operation is pending, or its launch time is
// unknown, returns nothing. If the file was copied later, the value is too large.
std::optional<int64_t> AgeOfHead(const v1::FlightRecorder& recorder, const std::string& path) {
  const auto& ops = recorder.operations();
  const auto head = std::find_if(ops.begin(), ops.end(), [](const auto& op) {
    return op.state() != v1::FlightRecorder::STATE_COMPLETED;
  });
  struct stat file {};
  if (head == ops.end() || head->created_ns() == 0 || head->created_ns() > INT64_MAX / 2 ||
      stat(path.c_str(), &file) != 0)
    return std::nullopt;
  const int64_t written = file.st_mtim.tv_sec * int64_t{1'000'000'000} + file.st_mtim.tv_nsec;
  return written - static_cast<int64_t>(head->created_ns());
}

class FlightSource : public Source {
 public:
  explicit FlightSource(const std::vector<InputReport*>& files) : files_(files) {}

  Position position() const override { return {"", 0, INT64_MIN}; }

  // Returns a batch without evidence while the files are read.
  bool Next(v1::Batch* batch) override {
    if (read_ < files_.size()) {
      ReadFile(files_[read_++]);
      return true;
    }
    constexpr size_t kMostAtOnce = 16u << 20;  // approximate bytes of a batch
    size_t bytes = 0;
    while (given_ != dumps_.end() && bytes < kMostAtOnce) bytes += Give(batch);
    return batch->evidence_size() > 0;
  }

  void Refused(const absl::Status& why) override {
    files_[0]->Add(0, "expected valid dumps, found: " + std::string(why.message()));
  }
  uint64_t bytes_read() const override { return bytes_; }
  size_t files_done() const override { return read_; }

  std::vector<v1::Source> processes() const override {
    std::vector<v1::Source> all;
    for (const auto& [rank, dump] : dumps_) all.push_back(Process(rank));
    return all;
  }

 private:
  void ReadFile(InputReport* report) {
    absl::StatusOr<InputFile> file = InputFile::Open(report->path);
    if (!file.ok()) return report->Add(0, std::string(file.status().message()));
    const std::unique_ptr<ByteStream> stream = ByteStream::Open(std::move(*file));
    std::string bytes;
    constexpr size_t kChunk = 1u << 20;
    for (size_t got = 1; got > 0 && bytes.size() <= kMostDumpBytes;) {
      const size_t at = bytes.size();
      bytes.resize(at + kChunk);
      got = stream->Read(bytes.data() + at, kChunk);
      bytes.resize(at + got);
    }
    bytes_ += stream->file_bytes_read();
    if (bytes.size() > kMostDumpBytes)
      return report->Add(kMostDumpBytes, "expected a dump of at most 64 MiB, found more");
    if (stream->problem()) report->Add(stream->problem()->offset, stream->problem()->text);
    TakeDump(bytes, report);
  }

  void TakeDump(const std::string& bytes, InputReport* report) {
    v1::FlightRecorder recorder;
    if (const auto problem = ReadFlightDump(bytes, &recorder, &report->records)) {
      report->Add(problem->offset, problem->text);
      return;
    }
    int64_t rank = RankAtEnd(report->path);
    if (rank < 0) {
      rank = 0;
      while (dumps_.contains(static_cast<uint32_t>(rank))) ++rank;
      report->Note("the name does not end in a rank: treated as rank " + std::to_string(rank));
    }
    for (const auto& group : recorder.groups()) {
      for (const uint32_t member : group.ranks()) world_ = std::max(world_, member + 1);
    }
    world_ = std::max(world_, static_cast<uint32_t>(rank) + 1);
    if (const std::optional<int64_t> age = AgeOfHead(recorder, report->path)) {
      any_age_ = true;
      oldest_head_ = std::max(oldest_head_, *age);
    } else if (HasPending(recorder)) {
      old_enough_ = true;  // the age is unknown, so it is assumed to be enough
    }
    const bool fresh = dumps_.emplace(static_cast<uint32_t>(rank), std::move(recorder)).second;
    if (!fresh)
      report->Add(0,
                  "expected one dump per rank, found a second one of rank " + std::to_string(rank));
    given_ = dumps_.begin();
  }

  static bool HasPending(const v1::FlightRecorder& recorder) {
    const auto& ops = recorder.operations();
    return std::any_of(ops.begin(), ops.end(), [](const auto& op) {
      return op.state() != v1::FlightRecorder::STATE_COMPLETED;
    });
  }

  // Returns true if all pending operations were launched shortly before the dumps were written.
  // Then no time limit can have passed: the dumps were requested, and the job may well continue.
  bool OnDemand() const {
    constexpr int64_t kMoment = 30'000'000'000, kClocksApart = 60'000'000'000;  // ns
    return any_age_ && !old_enough_ && oldest_head_ < kMoment && oldest_head_ > -kClocksApart;
  }

  size_t Give(v1::Batch* batch) {
    *batch->add_sources() = Process(given_->first);
    v1::Evidence& evidence = *batch->add_evidence();
    evidence.set_source(static_cast<uint32_t>(batch->sources_size()) - 1);
    evidence.mutable_site()->set_op("flight-recorder");
    evidence.set_sample_size(static_cast<uint64_t>(given_->second.operations_size()));
    // EXERCISED_NO means that no time limit can have passed.
    evidence.set_exercised(OnDemand() ? v1::EXERCISED_NO : v1::EXERCISED_YES);
    *evidence.mutable_flight_recorder() = given_->second;
    ++given_;
    return evidence.ByteSizeLong();
  }

  v1::Source Process(uint32_t rank) const {
    v1::Source process;
    process.set_role(v1::ROLE_TRAINER);
    process.set_rank(rank);
    process.set_world_size(world_);
    return process;
  }

  std::vector<InputReport*> files_;
  size_t read_ = 0;
  uint64_t bytes_ = 0;
  std::map<uint32_t, v1::FlightRecorder> dumps_;  // rank -> dump
  std::map<uint32_t, v1::FlightRecorder>::iterator given_ = dumps_.end();
  uint32_t world_ = 0;
  bool any_age_ = false, old_enough_ = false;
  int64_t oldest_head_ = INT64_MIN;  // largest age of an oldest pending operation, over all dumps
};

}  // namespace

bool FlightRecorderReader::Recognise(std::string_view path, std::string_view head) const {
  constexpr size_t kLook = 1u << 18;
  const bool packed = IsCompressed(head);
  if (!packed && LooksLikeFlightDump(head)) return true;
  const bool may_be = packed || (head.size() >= kHeadBytes &&
                                 (head[0] == '\x80' || head[0] == '{' || head[0] == '['));
  return may_be && LooksLikeFlightDump(FirstBytes(path, head, kLook));
}

Reader::Adjacent FlightRecorderReader::Judge(const std::string& path, std::string_view head,
                                             const std::vector<InputReport*>& files) const {
  const bool pickle = head.size() > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5;
  Adjacent adjacent = Adjacent::kStranger;
  for (const InputReport* dump : files) {
    if (FolderOf(dump->path) != FolderOf(path)) continue;
    const std::string_view stem = Stem(path);
    if (!stem.empty() && RankAtEnd(path) >= 0 && Stem(dump->path) == stem) return Adjacent::kOfThem;
    if (pickle) adjacent = Adjacent::kAlike;
  }
  return adjacent;
}

std::vector<std::unique_ptr<Source>> FlightRecorderReader::Open(
    const std::vector<InputReport*>& files) const {
  std::vector<std::unique_ptr<Source>> sources;
  if (!files.empty()) sources.push_back(std::make_unique<FlightSource>(files));
  return sources;
}

}  // namespace plumbline::audit
