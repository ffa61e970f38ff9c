// Small logs in a temporary folder, shared by the framed log's tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "base/framed_log.h"

namespace plumbline {

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "plumbline-log-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no temporary folder";
    path_ = name;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  std::string File(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void WriteAll(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// Payloads of many kinds: empty, short, incompressible, compressible beyond the threshold.
inline std::vector<std::string> SamplePayloads() {
  std::mt19937 random(11);
  std::string noise(300, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  return {"", "a", noise, std::string(600, 'x') + "end", "last"};
}

inline void WriteLog(const std::string& path, const std::vector<std::string>& payloads) {
  auto writer = FramedLogWriter::Open(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (const std::string& p : payloads) {
    ASSERT_TRUE((*writer)->Append(FrameType::kBatch, p).ok());
  }
}

struct Reading {
  std::vector<std::string> payloads;
  FramedLogReader::Result end = FramedLogReader::Result::kFrame;
  std::string error;
  absl::Status opened;
};

inline Reading ReadLog(const std::string& path, FramedLogOptions options = {}) {
  Reading reading;
  auto reader = FramedLogReader::Open(path, options);
  reading.opened = reader.status();
  if (!reader.ok()) return reading;
  FrameType type;
  std::string payload;
  while ((reading.end = (*reader)->Next(&type, &payload)) == FramedLogReader::Result::kFrame) {
    EXPECT_EQ(type, FrameType::kBatch);
    reading.payloads.push_back(payload);
  }
  reading.error = (*reader)->error();
  return reading;
}

}  // namespace plumbline
