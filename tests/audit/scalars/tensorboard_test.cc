// Event files whole, cut, damaged; their forms of scalars; folders, ranks and restarts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <deque>

#include "audit/readers/scalars/scalar_reader.h"
#include "tests/audit/audit_dumps.h"
#include "tests/audit/scalars/scalar_files.h"
#include "tests/support/files.h"

namespace plumbline::audit {
namespace {

using testing::BytesField;
using testing::Content;
using testing::EventFile;
using testing::FloatField;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ReadAll;
using testing::ReadPoints;
using testing::Tensor;
using testing::VarintField;

template <typename Value>
std::string Raw(Value value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

// Files by name, read as one set.
struct Folder {
  test::TempFolder dir;
  std::deque<InputReport> reports;

  InputReport& Add(const std::string& name, const std::string& bytes) {
    InputReport& report = reports.emplace_back();
    report.path = dir.Write(name, bytes);
    report.bytes = bytes.size();
    return report;
  }
  ReadPoints Read(const ReaderOptions& options = {}) {
    std::vector<InputReport*> files;
    for (InputReport& report : reports) files.push_back(&report);
    return ReadAll(TensorBoardReader(), files, options);
  }
};

constexpr const char* kName = "run/events.out.tfevents.1000000000.host.1.0";

ReadPoints ReadOne(const std::string& bytes, InputReport* out = nullptr) {
  Folder folder;
  folder.Add(kName, bytes);
  ReadPoints read = folder.Read();
  if (out != nullptr) *out = folder.reports[0];
  return read;
}

std::string Values(const ReadPoints& read, const std::string& series) {
  std::string out;
  for (const auto& [key, value] : read.by_key) {
    if (std::get<4>(key) != series) continue;
    char text[64];
    std::snprintf(text, sizeof text, "%u:%lld=%g ", std::get<1>(key),
                  static_cast<long long>(std::get<3>(key)), value);
    out += text;
  }
  return out;
}

TEST(TensorBoard, SimpleValues) {
  EventFile file;
  for (int64_t step = 0; step < 3; ++step)
    file.Scalar(step, "train/loss", 2.5f - static_cast<float>(step)).Scalar(step, "lr", 0);
  InputReport report;
  const ReadPoints read = ReadOne(file.bytes(), &report);
  EXPECT_EQ(Values(read, "train/loss"), "0:0=2.5 0:1=1.5 0:2=0.5 ");
  EXPECT_EQ(Values(read, "lr"), "0:0=0 0:1=0 0:2=0 ");
  EXPECT_EQ(std::get<0>(read.points[0].first), "run");
  EXPECT_EQ(report.records, 7u);
  EXPECT_TRUE(report.problems.empty());
  ASSERT_EQ(report.series.size(), 2u);
  EXPECT_EQ(report.series[1].name, "train/loss");
  EXPECT_EQ(report.series[1].points, 3u);
  EXPECT_TRUE(read.in_order);
}

TEST(TensorBoard, NonFiniteValuesAreValues) {
  const ReadPoints read =
      ReadOne(EventFile().Scalar(1, "loss", std::nanf("")).Scalar(2, "loss", HUGE_VALF).bytes());
  EXPECT_EQ(read.by_key.size(), 2u);
  EXPECT_EQ(Values(read, "loss"), "0:1=nan 0:2=inf ");
}

// TensorFlow 2 writes tensors; the values that stand for 1.5 in each form.
TEST(TensorBoard, TensorsOfOneNumber) {
  struct Form {
    const char* name;
    std::string value;
    const char* expected;  // "": no scalar
  };
  const uint16_t half = 0x3e00, bfloat = 0x3fc0;  // 1.5
  const std::string packed_half = BytesField(13, testing::Varint(half));
  const Form forms[] = {
      {"float content", Tensor(1, {}, Content(Raw(1.5f))), "1.5"},
      {"float value", Tensor(1, {}, FloatField(5, 1.5f)), "1.5"},
      {"float packed", Tensor(1, {}, BytesField(5, Raw(1.5f))), "1.5"},
      {"float [1]", Tensor(1, {1}, Content(Raw(1.5f))), "1.5"},
      {"float [1, 1]", Tensor(1, {1, 1}, FloatField(5, 1.5f)), "1.5"},
      {"float zero", Tensor(1, {}, ""), "0"},
      {"double content", Tensor(2, {}, Content(Raw(1.5))), "1.5"},
      {"double packed", Tensor(2, {}, BytesField(6, Raw(1.5))), "1.5"},
      {"half content", Tensor(19, {}, Content(Raw(half))), "1.5"},
      {"half value", Tensor(19, {}, packed_half), "1.5"},
      {"bfloat16 content", Tensor(14, {}, Content(Raw(bfloat))), "1.5"},
      {"int64 value", Tensor(9, {}, VarintField(10, 7)), "7"},
      {"int32 negative", Tensor(3, {}, VarintField(7, ~uint64_t{0})), "-1"},
      {"int32 content", Tensor(3, {}, Content(Raw(int32_t{-5}))), "-5"},
      {"no shape", BytesField(8, VarintField(1, 1) + Content(Raw(1.5f))), "1.5"},
      {"vector", Tensor(1, {2}, Content(Raw(1.5f) + Raw(1.5f))), ""},
      {"empty", Tensor(1, {0}, ""), ""},
      {"histogram", Tensor(2, {30, 3}, Content(std::string(720, 'x'))), ""},
      {"unknown rank",
       BytesField(8, VarintField(1, 1) + BytesField(2, VarintField(3, 1)) + Content(Raw(1.5f))),
       ""},
      {"text", Tensor(7, {}, BytesField(8, "hello")), ""},
      {"complex", Tensor(8, {}, Content(std::string(8, '\1'))), ""},
      {"content too short", Tensor(1, {}, Content("ab")), ""},
      {"old histogram", BytesField(5, std::string(100, 'h')), ""},
      {"image", BytesField(4, std::string(100, 'i')), ""},
  };
  for (const Form& form : forms) {
    SCOPED_TRACE(form.name);
    InputReport report;
    const ReadPoints read = ReadOne(EventFile().Value(4, "x", form.value).bytes(), &report);
    EXPECT_TRUE(report.problems.empty()) << report.problems[0].text;
    const std::string expected =
        *form.expected == '\0' ? "" : "0:4=" + std::string(form.expected) + " ";
    EXPECT_EQ(Values(read, "x"), expected);
  }
}

TEST(TensorBoard, SeveralValuesOfOneEventAndMetadata) {
  const auto value = [](const char* tag, float v) {
    return BytesField(1, BytesField(1, tag) + FloatField(2, v) +
                             BytesField(9, BytesField(1, BytesField(1, "scalars"))));
  };
  EventFile file;
  file.Record(VarintField(2, 9) + BytesField(5, value("a", 1) + value("b", 2)));
  file.Record(BytesField(4, std::string(1000, 'g')) + VarintField(2, 10));  // a graph
  const ReadPoints read = ReadOne(file.bytes());
  EXPECT_EQ(Values(read, "a"), "0:9=1 ");
  EXPECT_EQ(Values(read, "b"), "0:9=2 ");
}

TEST(TensorBoard, BadDataIsSkippedAndCounted) {
  EventFile file;
  file.Scalar(1, "loss", 1);
  const size_t at = file.bytes().size();
  file.Scalar(2, "loss", 2).Scalar(3, "loss", 3);
  std::string bytes = file.bytes();
  bytes[at + 20] = static_cast<char>(bytes[at + 20] ^ 1);
  InputReport report;
  const ReadPoints read = ReadOne(bytes, &report);
  EXPECT_EQ(Values(read, "loss"), "0:1=1 0:3=3 ");
  EXPECT_FALSE(report.failed());
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_EQ(report.problems[0].offset, at);
  EXPECT_THAT(report.problems[0].text, HasSubstr("found 1 records"));
  EXPECT_EQ(report.records, 3u);
}

// The host crashed: the space allocated for the file holds zeros.
TEST(TensorBoard, AnUnwrittenEnd) {
  EventFile file;
  file.Scalar(1, "loss", 1);
  const std::string bytes = file.bytes();
  for (const size_t zeros : {1, 12, 5000, 3 << 20}) {
    InputReport report;
    EXPECT_EQ(Values(ReadOne(bytes + std::string(zeros, '\0'), &report), "loss"), "0:1=1 ");
    EXPECT_FALSE(report.failed()) << zeros;
    ASSERT_EQ(report.problems.size(), 1u);
    EXPECT_EQ(report.problems[0].offset, bytes.size());
  }
  InputReport report;  // if records follow the zeros, the file is damaged
  ReadOne(bytes + std::string(5000, '\0') + bytes, &report);
  EXPECT_TRUE(report.failed());
}

TEST(TensorBoard, BadLengthEndsTheFile) {
  EventFile file;
  file.Scalar(1, "loss", 1);
  const size_t at = file.bytes().size();
  file.Scalar(2, "loss", 2).Scalar(3, "loss", 3);
  std::string bytes = file.bytes();
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  InputReport report;
  const ReadPoints read = ReadOne(bytes, &report);
  EXPECT_EQ(Values(read, "loss"), "0:1=1 ");
  EXPECT_TRUE(report.failed());
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_EQ(report.problems[0].offset, at);
  EXPECT_THAT(report.problems[0].text, HasSubstr("expected a length that matches its checksum"));
}

TEST(TensorBoard, CutAtEveryLength) {
  EventFile file;
  for (int64_t step = 0; step < 4; ++step) file.Scalar(step, "loss", 1);
  const std::string& whole = file.bytes();
  size_t previous = 0;
  for (size_t size = 0; size <= whole.size(); ++size) {
    SCOPED_TRACE(size);
    InputReport report;
    const ReadPoints read = ReadOne(whole.substr(0, size), &report);
    EXPECT_FALSE(report.failed());
    EXPECT_GE(read.points.size(), previous);
    previous = read.points.size();
  }
  EXPECT_EQ(previous, 4u);
}

// A flipped bit loses one record, or all records after it. No value is invented.
TEST(TensorBoard, EveryBitFlipped) {
  EventFile file;
  for (int64_t step = 0; step < 3; ++step)
    file.Scalar(step, "loss", 1.0f + static_cast<float>(step));
  const ReadPoints whole = ReadOne(file.bytes());
  for (size_t bit = 0; bit < 8 * file.bytes().size(); ++bit) {
    SCOPED_TRACE(bit);
    std::string bytes = file.bytes();
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    InputReport report;
    const ReadPoints read = ReadOne(bytes, &report);
    ASSERT_FALSE(report.problems.empty());
    EXPECT_THAT(report.problems[0].text, HasSubstr("expected "));
    for (const auto& [key, value] : read.by_key) {
      ASSERT_TRUE(whole.by_key.contains(key));
      EXPECT_EQ(whole.by_key.at(key), value);
    }
  }
}

TEST(TensorBoard, DataThatAreNoEventAreAnError) {
  InputReport report;
  const ReadPoints read =
      ReadOne(EventFile().Record("\xff\xff\xff").Scalar(1, "loss", 1).bytes(), &report);
  EXPECT_EQ(Values(read, "loss"), "0:1=1 ");
  EXPECT_TRUE(report.failed());
}

TEST(TensorBoard, RecognisedByContent) {
  const Reader& reader = TensorBoardReader();
  const std::string bytes = EventFile().Scalar(1, "loss", 1).bytes();
  EXPECT_TRUE(reader.Recognise("any.name", bytes));
  EXPECT_FALSE(reader.Recognise("any.name", testing::TfRecord("\x0a\x03"
                                                              "abc")));
  EXPECT_FALSE(reader.Recognise("events.out.tfevents.1", "these are no records at all"));
  EXPECT_TRUE(reader.Recognise("events.out.tfevents.1", ""));
  EXPECT_FALSE(reader.Recognise("empty", ""));
  std::string damaged = bytes;
  damaged[9] = static_cast<char>(damaged[9] ^ 1);
  EXPECT_TRUE(reader.Recognise("any.name", damaged)) << "a damaged one is still an event file";
}

// train/ and val/ belong to the run of their parent folder. The folder is a prefix of the names.
TEST(TensorBoard, FoldersOfARun) {
  Folder folder;
  folder.Add("exp1/train/events.out.tfevents.1", EventFile(1).Scalar(1, "loss", 1).bytes());
  folder.Add("exp1/val/events.out.tfevents.2", EventFile(2).Scalar(1, "loss", 2).bytes());
  folder.Add("exp2/events.out.tfevents.3", EventFile(3).Scalar(1, "loss", 3).bytes());
  folder.Add("exp2/loss_a/events.out.tfevents.4", EventFile(4).Scalar(1, "loss", 4).bytes());
  const ReadPoints read = folder.Read();
  std::string all;
  for (const auto& [key, value] : read.points)
    all += std::get<0>(key) + ":" + std::get<4>(key) + "=" + std::to_string(int(value)) + " ";
  EXPECT_EQ(all, "exp1:train/loss=1 exp1:val/loss=2 exp2:loss=3 exp2:loss_a/loss=4 ");
  EXPECT_TRUE(read.in_order);
}

TEST(TensorBoard, FoldersAndFilesOfRanks) {
  Folder folder;
  folder.Add("exp/rank0/events.out.tfevents.1", EventFile(1).Scalar(1, "loss", 1).bytes());
  folder.Add("exp/rank1/events.out.tfevents.2", EventFile(2).Scalar(1, "loss", 2).bytes());
  const ReadPoints read = folder.Read();
  EXPECT_EQ(read.by_key.at({"exp", 0, 0, 1, "loss"}), 1);
  EXPECT_EQ(read.by_key.at({"exp", 0, 1, 1, "loss"}), 2);
  EXPECT_EQ(read.batches[0].sources(0).world_size(), 2u);

  Folder worker;
  worker.Add("a/worker-3/events.out.tfevents.1", EventFile(1).Scalar(1, "loss", 1).bytes());
  ReaderOptions options;
  options.scalars.rank_pattern = "worker-(\\d+)";
  options.scalars.run = "mine";
  EXPECT_EQ(worker.Read(options).by_key.count({"mine", 0, 3, 1, "loss"}), 1u);
}

// The second file begins at a step that the first has passed. It is a new attempt, also for series
// that are logged too rarely to show it, and for the other folder.
TEST(TensorBoard, ARestartIsOneOfAllSeries) {
  Folder folder;
  EventFile first(100), second(200), val_first(101), val_second(201);
  for (int64_t step = 0; step <= 100; ++step) first.Scalar(step, "loss", 1);
  first.Scalar(100, "rare", 1);
  for (int64_t step = 60; step <= 120; ++step) second.Scalar(step, "loss", 2);
  second.Scalar(120, "rare", 2);
  val_first.Scalar(50, "loss", 1).Scalar(100, "loss", 1);
  val_second.Scalar(100, "loss", 2);
  // Their names sort in reverse; the time in the files decides.
  folder.Add("exp/train/events.out.tfevents.b", first.bytes());
  folder.Add("exp/train/events.out.tfevents.a", second.bytes());
  folder.Add("exp/val/events.out.tfevents.d", val_first.bytes());
  folder.Add("exp/val/events.out.tfevents.c", val_second.bytes());
  const ReadPoints read = folder.Read();
  EXPECT_TRUE(read.in_order);
  EXPECT_EQ(read.by_key.at({"exp", 0, 0, 100, "train/loss"}), 1);
  EXPECT_EQ(read.by_key.at({"exp", 1, 0, 60, "train/loss"}), 2);
  EXPECT_EQ(read.by_key.at({"exp", 0, 0, 100, "train/rare"}), 1);
  EXPECT_EQ(read.by_key.at({"exp", 1, 0, 120, "train/rare"}), 2);
  EXPECT_EQ(read.by_key.at({"exp", 0, 0, 100, "val/loss"}), 1);
  EXPECT_EQ(read.by_key.at({"exp", 1, 0, 100, "val/loss"}), 2);
  EXPECT_EQ(read.points.size(), 101u + 1 + 61 + 1 + 3);
}

// SessionLog.START, which a writer with a purge step begins with.
TEST(TensorBoard, AStartOfASessionIsARestart) {
  EventFile file;
  file.Scalar(5, "loss", 1);
  file.Record(VarintField(2, 3) + BytesField(7, VarintField(1, 1)));
  file.Scalar(6, "loss", 2);
  const ReadPoints read = ReadOne(file.bytes());
  EXPECT_EQ(Values(read, "loss"), "0:5=1 1:6=2 ");
}

// What protoc makes of the messages' own definitions is read the same.
TEST(TensorBoard, AgainstProtoc) {
  ASSERT_EQ(std::system("protoc --version > /dev/null 2>&1"), 0) << "tools/setup installs protoc";
  const test::TempFolder dir;
  dir.Write("e.proto", R"(syntax = "proto3";
message Event { double wall_time = 1; int64 step = 2; oneof what { string file_version = 3;
  bytes graph_def = 4; Summary summary = 5; } }
message Summary { message Value { string node_name = 7; string tag = 1; Metadata metadata = 9;
  oneof value { float simple_value = 2; Tensor tensor = 8; } } repeated Value value = 1; }
message Metadata { message Plugin { string plugin_name = 1; bytes content = 2; } Plugin plugin_data = 1;
  string display_name = 2; string summary_description = 3; }
message Tensor { int32 dtype = 1; Shape tensor_shape = 2; int32 version_number = 3; bytes tensor_content = 4;
  repeated float float_val = 5 [packed = true]; repeated double double_val = 6 [packed = true];
  repeated int32 half_val = 13 [packed = true]; repeated int64 int64_val = 10 [packed = true]; }
message Shape { message Dim { int64 size = 1; string name = 2; } repeated Dim dim = 2; bool unknown_rank = 3; }
)");
  const char* texts[] = {
      "wall_time: 1700000000.5 file_version: 'brain.Event:2'",
      "wall_time: 1.7e9 step: 1 summary { value { tag: 'loss' simple_value: 1.5 } }",
      "wall_time: 1.7e9 summary { value { tag: 'loss' simple_value: 0 } }",
      "step: 2 summary { value { tag: 'loss' tensor { dtype: 1 tensor_shape {} float_val: 2.5 } "
      "metadata { plugin_data { plugin_name: 'scalars' } } } }",
      "step: 3 summary { value { tag: 'loss' tensor { dtype: 2 tensor_shape {} double_val: 3.5 } } "
      "}",
      "step: 4 summary { value { tag: 'loss' tensor { dtype: 19 tensor_shape { dim { size: 1 } } "
      "half_val: 15872 } } }",
      "step: 5 summary { value { node_name: 'n' tag: 'loss' tensor { dtype: 9 int64_val: -6 } } }",
      "step: 9223372036854775807 summary { value { tag: 'last' simple_value: 1e30 } }"};
  std::string bytes;
  for (const char* text : texts) {
    dir.Write("e.txt", text);
    const std::string command =
        "cd " + dir.path() + " && protoc --encode=Event e.proto < e.txt > e.bin";
    ASSERT_EQ(std::system(command.c_str()), 0) << text;
    bytes += testing::TfRecord(test::ReadFile(dir.File("e.bin")));
  }
  InputReport report;
  const ReadPoints read = ReadOne(bytes, &report);
  EXPECT_TRUE(report.problems.empty());
  EXPECT_EQ(Values(read, "loss"), "0:0=0 0:1=1.5 0:2=2.5 0:3=3.5 0:4=1.5 0:5=-6 ");
  EXPECT_EQ(Values(read, "last"), "0:9223372036854775807=1e+30 ");
}

// A writer that is given no step writes 0: its points are counted, not folded into one.
TEST(TensorBoard, PointsWithoutSteps) {
  EventFile without, with;
  for (int i = 0; i < 120; ++i) without.Scalar(0, "loss", i == 100 ? NAN : 2.5f);
  InputReport report;
  const ReadPoints read = ReadOne(without.bytes(), &report);
  EXPECT_EQ(read.points.size(), 120u);
  for (const auto& [key, value] : read.points)
    EXPECT_EQ(std::isnan(value), std::get<3>(key) == 100);
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_THAT(report.notes[0], HasSubstr("found 119 more points with step 0"));
  for (int i = 0; i < 3; ++i) with.Scalar(i, "loss", 2.5f);
  EXPECT_EQ(ReadOne(with.bytes(), &report).points.size(), 3u);
  EXPECT_TRUE(report.notes.empty());
}

// A tag that is too long for a name is cut, with a mark; the others are read as ever.
TEST(TensorBoard, ALongTag) {
  EventFile file;
  file.Scalar(1, std::string(600, 'a') + "1", 2.5f);
  file.Scalar(1, std::string(600, 'a') + "2", 3.5f);
  file.Scalar(1, "loss", 1.5f);
  InputReport report;
  const ReadPoints read = ReadOne(file.bytes(), &report);
  EXPECT_EQ(read.points.size(), 3u);
  EXPECT_TRUE(report.problems.empty());
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_THAT(report.notes[0], HasSubstr("found 2 longer ones"));
}

// What add_hparams writes: a message of the plugin in the metadata of a value without a number.
TEST(TensorBoard, HparamsAreSettings) {
  const auto entry = [](std::string_view name, const std::string& value) {
    return BytesField(1, BytesField(1, name) + BytesField(2, value));
  };
  const std::string start = entry("lr", testing::DoubleField(2, 0.001)) +
                            entry("opt", BytesField(3, "adam")) + entry("amp", VarintField(4, 1));
  const std::string metadata =
      BytesField(1, BytesField(1, "hparams") + BytesField(2, BytesField(3, start)));
  InputReport report;
  EventFile file;
  file.Value(0, "_hparams_/session_start_info", BytesField(9, metadata)).Scalar(1, "loss", 2.5F);
  EXPECT_EQ(Values(ReadOne(file.bytes(), &report), "loss"), "0:1=2.5 ");
  EXPECT_EQ(report.settings,
            (std::map<std::string, std::string>{
                {"config: lr", "0.001"}, {"config: opt", "adam"}, {"config: amp", "true"}}));
  EXPECT_FALSE(report.failed());
  EventFile damaged;
  damaged.Value(0, "_hparams_/session_start_info", BytesField(9, "\x0a\x7f"));
  ReadOne(damaged.bytes(), &report);
  EXPECT_TRUE(report.failed());
}

}  // namespace
}  // namespace plumbline::audit
