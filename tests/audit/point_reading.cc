#include "tests/audit/point_reading.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>

#include "tests/support/files.h"

namespace plumbline::audit::testing {
namespace {

class Sink : public PointSink {
 public:
  explicit Sink(PointsRead* read) : read_(read) {}

  uint32_t Column(std::string_view name) override {
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == name) return static_cast<uint32_t>(i);
    }
    names_.emplace_back(name);
    return static_cast<uint32_t>(names_.size() - 1);
  }
  void Add(int64_t step, uint32_t column, double value) override {
    if (column == kNoColumn) return;
    ASSERT_LT(column, names_.size());
    read_->points.push_back({step, names_[column], value, rank_});
  }
  void Resumed() override { ++read_->resumes; }
  void Unplaced(uint64_t values) override { read_->unplaced += values; }
  void Belongs(std::string_view run, int64_t rank) override {
    if (!run.empty()) read_->run = run;
    if (rank >= 0) read_->rank = rank;
  }
  void ForRank(uint32_t rank) override { rank_ = rank; }

 private:
  PointsRead* read_;
  std::vector<std::string> names_;
  int64_t rank_ = -1;
};

void Append(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary | std::ios::app) << bytes;
}

}  // namespace

bool SamePoint(const ReadPoint& a, const ReadPoint& b) {
  const bool value = a.value == b.value || (std::isnan(a.value) && std::isnan(b.value));
  return a.step == b.step && a.series == b.series && value;
}

std::vector<double> PointsRead::Values(std::string_view series) const {
  std::vector<double> values;
  for (const ReadPoint& p : points) {
    if (p.series == series) values.push_back(p.value);
  }
  return values;
}

std::vector<int64_t> PointsRead::Steps(std::string_view series) const {
  std::vector<int64_t> steps;
  for (const ReadPoint& p : points) {
    if (p.series == series) steps.push_back(p.step);
  }
  return steps;
}

std::vector<int64_t> PointsRead::Ranks() const {
  std::vector<int64_t> ranks;
  for (const ReadPoint& p : points) ranks.push_back(p.rank);
  return ranks;
}

std::string PointsRead::Problems() const {
  std::string text;
  for (const Problem& p : report.problems)
    text += (p.error ? "error " : "note ") + std::to_string(p.offset) + ": " + p.text + "\n";
  for (const std::string& note : report.notes) text += "note 0: " + note + "\n";
  return text;
}

std::string PointsRead::Text() const {
  std::string text;
  for (const ReadPoint& p : points)
    text += std::to_string(p.step) + " " + p.series + " " + std::to_string(p.value) + "\n";
  return text;
}

PointsRead ReadPoints(const PointFormat& format, const std::string& bytes,
                      const ScalarOptions& options, const std::string& name, size_t piece) {
  const test::TempFolder folder;
  PointsRead read;
  const size_t first = piece > 0 ? std::min(piece, bytes.size()) : bytes.size();
  read.report.path = folder.Write(name, bytes.substr(0, first));
  Sink sink(&read);
  const std::unique_ptr<PointFile> file = format.open(&read.report, options);
  if (file == nullptr) return read;
  while (file->Read(&sink)) {
  }
  for (size_t at = first; at < bytes.size(); at += piece) {
    Append(read.report.path, std::string_view(bytes).substr(at, piece));
    while (file->Read(&sink)) {
    }
  }
  file->Close(&sink);
  EXPECT_EQ(file->bytes_read(), bytes.size());
  return read;
}

bool Recognises(const PointFormat& format, const std::string& bytes, const std::string& name) {
  const test::TempFolder folder;
  const std::string path = folder.Write(name, bytes);
  return format.recognise(path, std::string_view(bytes).substr(0, Reader::kHeadBytes));
}

}  // namespace plumbline::audit::testing
