// Files that a real trainer wrote (data/trainer_logs), compared with the values that it printed.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/audit/point_reading.h"
#include "tests/audit/rollout_files.h"
#include "tests/support/files.h"

namespace plumbline::audit {
namespace {

using testing::PointsRead;
using testing::ReadPoint;
using testing::ReadPoints;
using testing::Recognises;

std::string Data(const std::string& name) {
  return test::ReadFile(std::string(PLUMBLINE_SOURCE_DIR) + "/tests/audit/data/trainer_logs/" +
                        name);
}

struct TrainerFile {
  const char* name;
  const PointFormat& (*format)();
};

class TrainerFiles : public ::testing::TestWithParam<TrainerFile> {};

// In any order within a step: a CSV has its own order.
std::vector<std::string> Sorted(const std::vector<ReadPoint>& points) {
  std::vector<std::string> lines;
  for (const ReadPoint& p : points) {
    char value[32];
    std::snprintf(value, sizeof value, "%.12g", p.value + 0.0);  // a rate's 0 may have a sign
    lines.push_back(std::to_string(p.step) + " " + p.series + " " +
                    (std::isnan(p.value) ? "nan" : value));
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::vector<ReadPoint> Expected(const std::string& name) {
  std::vector<ReadPoint> points;
  const auto all = nlohmann::json::parse(Data("points.json"));
  for (const auto& p : all[name])
    points.push_back({p[0], p[1], p[2].is_string() ? std::nan("") : p[2].get<double>()});
  return points;
}

TEST_P(TrainerFiles, EveryPointIsAsPrinted) {
  const TrainerFile& file = GetParam();
  PointsRead read = ReadPoints(file.format(), Data(file.name), {}, file.name);
  const bool bar = std::string(file.name) == "hugging_face.log";  // only the bar has the steps
  EXPECT_EQ(read.Problems(),
            bar ? "note 0: expected a step in each line, found 15 dictionaries without one: their "
                  "steps are those of the progress bar below or above\n"
                : "");
  EXPECT_EQ(read.unplaced, 0u);
  EXPECT_EQ(read.resumes, 0u);
  // The limit is the memory divided by its share; the line has both.
  for (const double limit : read.Values("memory limit")) EXPECT_NEAR(limit, 85.1e9, 0.2e9);
  std::erase_if(read.points, [](const ReadPoint& p) { return p.series == "memory limit"; });
  const std::vector<std::string> expected = Sorted(Expected(file.name));
  ASSERT_GT(expected.size(), 40u);
  EXPECT_EQ(Sorted(read.points), expected);
}

TEST_P(TrainerFiles, AGrowingFileGivesTheSame) {
  const TrainerFile& file = GetParam();
  const std::string bytes = Data(file.name);
  const std::string whole = ReadPoints(file.format(), bytes, {}, file.name).Text();
  for (const size_t piece : {97u, 1000u})
    EXPECT_EQ(ReadPoints(file.format(), bytes, {}, file.name, piece).Text(), whole);
}

TEST_P(TrainerFiles, PackedFilesGiveTheSame) {
  const TrainerFile& file = GetParam();
  const std::string bytes = Data(file.name);
  const std::string packed = testing::Gzip(bytes);
  EXPECT_EQ(ReadPoints(file.format(), packed, {}, file.name).Text(),
            ReadPoints(file.format(), bytes, {}, file.name).Text());
  EXPECT_TRUE(Recognises(file.format(), packed, "file.gz"));
}

TEST_P(TrainerFiles, OneFormatTakesEach) {
  const TrainerFile& file = GetParam();
  for (const PointFormat* format : {&CsvFormat(), &JsonLinesFormat(), &TrainerLogFormat()}) {
    EXPECT_EQ(Recognises(*format, Data(file.name), file.name), format == &file.format())
        << format->name;
    EXPECT_EQ(Recognises(*format, Data(file.name), "noname"), format == &file.format())
        << format->name;
  }
}

// A file cut at any position gives points of the whole file and never another value: values that
// may be cut are left out.
TEST_P(TrainerFiles, ACutFileReportsNothingElse) {
  const TrainerFile& file = GetParam();
  const std::string bytes = Data(file.name).substr(0, 3000);
  const std::vector<ReadPoint> whole = ReadPoints(file.format(), Data(file.name), {}).points;
  for (size_t size = 0; size < bytes.size(); size += size < 200 ? 1 : 13) {
    const PointsRead read = ReadPoints(file.format(), bytes.substr(0, size), {}, file.name);
    for (const Problem& p : read.report.problems) EXPECT_FALSE(p.error) << size << ": " << p.text;
    ASSERT_LE(read.points.size(), whole.size());
    for (size_t i = 0; i < read.points.size(); ++i)
      ASSERT_TRUE(SamePoint(read.points[i], whole[i])) << "cut at " << size << ", point " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, TrainerFiles,
                         ::testing::Values(TrainerFile{"megatron.log", TrainerLogFormat},
                                           TrainerFile{"nanogpt.log", TrainerLogFormat},
                                           TrainerFile{"hugging_face.log", TrainerLogFormat},
                                           TrainerFile{"torchtitan.log", TrainerLogFormat},
                                           TrainerFile{"key_value.txt", TrainerLogFormat},
                                           TrainerFile{"metrics.csv", CsvFormat},
                                           TrainerFile{"scalars.jsonl", JsonLinesFormat},
                                           TrainerFile{"trainer_state.json", JsonLinesFormat}),
                         [](const auto& shape) {
                           std::string name = shape.param.name;
                           for (char& c : name) c = c == '.' ? '_' : c;
                           return name;
                         });

// A skipped iteration has no loss, which is not a NaN; a printed NaN is one.
TEST(TrainerFiles, ASkippedIterationHasNoLoss) {
  const PointsRead megatron = ReadPoints(TrainerLogFormat(), Data("megatron.log"));
  const std::vector<int64_t> steps = megatron.Steps("lm loss");
  EXPECT_EQ(steps.size(), 119u);
  EXPECT_EQ(std::count(steps.begin(), steps.end(), 57), 0);
  for (const double loss : megatron.Values("lm loss")) EXPECT_TRUE(std::isfinite(loss));
  const std::vector<double> norms =
      ReadPoints(JsonLinesFormat(), Data("scalars.jsonl")).Values("optimizer/grad_norm");
  ASSERT_EQ(norms.size(), 120u);
  EXPECT_TRUE(std::isnan(norms[56]));
}

}  // namespace
}  // namespace plumbline::audit
