// The safetensors reader with malformed files: every error is a problem with its position, and
// well-formed content is read unchanged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>

#include "audit/readers/dumps/reader.h"
#include "audit/readers/safetensors/header.h"
#include "audit/session/audit.h"
#include "tests/audit/audit_dumps.h"
#include "tests/audit/dump_builder.h"

namespace plumbline::audit {
namespace {

using test::TempFolder;
using testing::Audit;
using testing::AuditBytes;
using testing::Bytes;
using testing::DroplessDump;
using testing::Dump;
using ::testing::HasSubstr;
using testing::Judged;
using testing::LeakyDump;
using testing::Problems;
using testing::RawFile;

// ---- the container -------------------------------------------------------------------------

std::string Header(const std::string& entry) { return "{\"x\":" + entry + "}"; }

struct Lie {
  const char* name;
  std::string bytes;
  const char* expected;  // part of the problem
};

std::vector<Lie> Lies() {
  const std::string four(4, '\0');
  std::string huge_length = RawFile("{}", "");
  huge_length.replace(0, 8, "\xFF\xFF\xFF\xFF\xFF\xFF\x00\x00", 8);
  std::string past_end = RawFile("{}", "");
  past_end[0] = 100;
  return {
      {"empty file", "", "byte 0: expected 8 bytes of header length"},
      {"seven bytes", std::string(7, '\0'), "byte 7: expected 8 bytes of header length"},
      {"header length zero", RawFile("", ""), "expected a JSON header"},
      {"huge header length", huge_length, "byte 0: expected a header of at most 100000000 bytes"},
      {"header past the end", past_end, "byte 10: expected a header of 100 bytes"},
      {"no JSON", RawFile("{hello", ""), "expected a JSON header"},
      {"an array", RawFile("{\"x\":[1]}", ""), "expected an object with dtype"},
      {"cut JSON", RawFile("{\"x\":{\"dtype\":\"F32\"", ""), "expected a JSON header"},
      {"two documents", RawFile("{}{}", ""), "expected a JSON header"},
      {"bad UTF-8", RawFile("{\"\xFF\":1}", ""), "expected a JSON header"},
      {"metadata no object", RawFile("{\"__metadata__\":3}", ""),
       "expected __metadata__ to be an object"},
      {"metadata number", RawFile("{\"__metadata__\":{\"top_k\":2}}", ""),
       "byte 25: expected metadata \"top_k\" to be a string, found a number"},
      {"metadata list", RawFile("{\"__metadata__\":{\"a\":[]}}", ""),
       "to be a string, found an array"},
      {"metadata twice", RawFile("{\"__metadata__\":{},\"__metadata__\":{}}", ""),
       "expected each key once"},
      {"metadata key twice", RawFile("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", ""),
       "expected each metadata key once"},
      {"tensor twice",
       RawFile("{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"x\":{\"dtype\":"
               "\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
               four),
       "expected each tensor once"},
      {"dtype twice",
       RawFile(Header("{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}"),
               four),
       "expected each key once"},
      {"unknown dtype",
       RawFile(Header("{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]}"), four),
       "expected a dtype of the format"},
      {"dtype number", RawFile(Header("{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}"), four),
       "expected dtype to be a string"},
      {"no shape", RawFile(Header("{\"dtype\":\"F32\",\"data_offsets\":[0,4]}"), four),
       "found fewer"},
      {"unknown key", RawFile(Header("{\"dtype\":\"F32\",\"size\":1}"), four),
       "expected dtype, shape or data_offsets"},
      {"negative extent",
       RawFile(Header("{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}"), four),
       "found a negative number"},
      {"fractional extent",
       RawFile(Header("{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}"), four),
       "expected shape to be an array of whole numbers"},
      {"extent past 2^64",
       RawFile(
           Header("{\"dtype\":\"F32\",\"shape\":[18446744073709551616],\"data_offsets\":[0,4]}"),
           four),
       "expected"},
      {"nested shape",
       RawFile(Header("{\"dtype\":\"F32\",\"shape\":[[1]],\"data_offsets\":[0,4]}"), four),
       "found an array"},
      {"nine axes",
       RawFile(Header("{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}"),
               four),
       "expected at most 8 axes"},
      {"overflowing product",
       RawFile(Header("{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4611686018427387904],"
                      "\"data_offsets\":[0,0]}"),
               ""),
       "expected a size that fits 64 bits"},
      {"product wraps to 4",
       RawFile(
           Header("{\"dtype\":\"U8\",\"shape\":[4294967297,4294967300],\"data_offsets\":[0,4]}"),
           four),
       "expected a size that fits 64 bits"},
      {"too few bytes",
       RawFile(Header("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}"), four),
       "expected 8 bytes for the shape and dtype"},
      {"half a byte",
       RawFile(Header("{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}"),
               std::string(2, '\0')),
       "expected a size"},
      {"reversed offsets",
       RawFile(Header("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}"), four),
       "in ascending order"},
      {"one offset",
       RawFile(Header("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}"), four),
       "found fewer"},
      {"three offsets",
       RawFile(Header("{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}"), four),
       "expected two data_offsets"},
      {"past the end",
       RawFile(Header("{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"), four),
       "expected 4 more bytes of tensor \"x\""},
      {"far past the end",
       RawFile(Header("{\"dtype\":\"U8\",\"shape\":[9223372036854775807],\"data_offsets\":[0,"
                      "9223372036854775807]}"),
               four),
       "more bytes of tensor"},
      {"hole at the start",
       RawFile(Header("{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}"), four),
       "(a hole)"},
      {"rest at the end",
       RawFile(Header("{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}"), four),
       "expected the end of the file after the last tensor, found 2 more bytes"},
      {"overlap",
       RawFile("{\"x\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},\"y\":{\"dtype\":"
               "\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
               four),
       "(they overlap)"},
      {"deep nesting", RawFile("{\"x\":" + std::string(1 << 20, '['), ""), "found an array"},
      {"deep objects",
       RawFile(
           [] {
             std::string s;
             for (int i = 0; i < 1 << 18; ++i) s += "{\"a\":";
             return s;
           }(),
           ""),
       "expected"},
      {"not UTF-8 as a name", RawFile("{\"\\ud800\":1}", ""), "expected a JSON header"},
  };
}

TEST(Safetensors, EveryLieIsAProblemWithItsPlace) {
  for (const Lie& lie : Lies()) {
    SCOPED_TRACE(lie.name);
    const AuditResult result = AuditBytes(lie.bytes);
    EXPECT_TRUE(result.inputs_failed());
    EXPECT_FALSE(Judged(result));
    EXPECT_THAT(Problems(result), HasSubstr(lie.expected));
    EXPECT_THAT(Problems(result), HasSubstr("a.safetensors: byte "));
  }
}

TEST(Safetensors, HundredMegabyteHeaderOfNothing) {
  std::string header =
      "{\"__metadata__\":{\"kind\":\"routing\",\"note\":\"" + std::string(99'000'000, 'x') + "\"}}";
  EXPECT_THAT(Problems(AuditBytes(RawFile(header, ""))),
              HasSubstr("expected a tensor router_logits or router_scores"));
  header.insert(header.size() - 3, std::string(2'000'000, 'x'));
  EXPECT_THAT(Problems(AuditBytes(RawFile(header, ""))), HasSubstr("expected a header of at most"));
}

TEST(Safetensors, CutAtEveryByteIsNeverJudged) {
  const std::string whole = DroplessDump(8, 4).File();
  for (size_t size = 0; size < whole.size(); ++size) {
    SCOPED_TRACE(size);
    const AuditResult result = AuditBytes(whole.substr(0, size));
    EXPECT_TRUE(result.inputs_failed());
    EXPECT_FALSE(Judged(result));
  }
  EXPECT_TRUE(Judged(AuditBytes(whole)));
}

TEST(Safetensors, HeaderKeepsEveryTensor) {
  const TempFolder dir;
  const Dump dump = DroplessDump(8, 4);
  auto file = InputFile::Open(dir.Write("a", dump.File()));
  ASSERT_TRUE(file.ok());
  SafetensorsHeader header;
  ASSERT_FALSE(ReadSafetensorsHeader(*file, &header));
  ASSERT_EQ(header.tensors.size(), dump.tensors.size());
  for (const auto& tensor : dump.tensors) {
    const TensorEntry* entry = header.Find(tensor.name);
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->shape, tensor.shape);
    std::string data(entry->bytes(), '\0');
    ASSERT_TRUE(file->ReadAt(entry->begin, data.data(), data.size()).ok());
    EXPECT_EQ(data, tensor.data) << tensor.name;
  }
  EXPECT_EQ(header.Metadata("top_k")->value, "2");
}

TEST(Safetensors, TrailingSpacesInTheHeaderAreFine) {
  const Dump dump = DroplessDump(64, 4);
  std::string data;
  for (const auto& tensor : dump.tensors) data += tensor.data;
  EXPECT_TRUE(Judged(AuditBytes(RawFile(dump.HeaderJson() + "       ", data))));
}

}  // namespace
}  // namespace plumbline::audit
