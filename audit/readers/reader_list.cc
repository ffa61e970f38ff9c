// The formats that this version reads, as an explicit list, because static initialisers vanish from
// static libraries.
#include "audit/readers/checkpoint/reader.h"
#include "audit/readers/dumps/reader.h"
#include "audit/readers/flight_recorder/reader.h"
#include "audit/readers/input/reader.h"
#include "audit/readers/kineto/reader.h"
#include "audit/readers/nccl_log/reader.h"
#include "audit/readers/record/run_record.h"
#include "audit/readers/rollout/column_map.h"
#include "audit/readers/rollout/jsonl.h"
#include "audit/readers/scalars/scalar_reader.h"

namespace plumbline::audit {

const std::vector<const Reader*>& Readers() {
  static const CheckpointReader checkpoint;  // reads the safetensors files that are not dumps
  static const KinetoReader kineto;
  static const FlightRecorderReader flight_recorder;
  static const SafetensorsReader safetensors;
  static const RunRecordReader run_record;
  static const NcclLogReader nccl_log;
  static const std::vector<const Reader*> readers = [] {
    std::vector<const Reader*> list = {&flight_recorder, &kineto};
    for (const Reader* reader : KnownRollouts()) list.push_back(reader);  // torch.save's, too
    for (const Reader* reader : {&NativeRollouts(), &PrimeRlRollouts(), &NemoRlRollouts()})
      list.push_back(reader);
    for (const Reader* reader :
         std::initializer_list<const Reader*>{&checkpoint, &safetensors, &run_record, &nccl_log})
      list.push_back(reader);
    for (const Reader* reader : ScalarReaders()) list.push_back(reader);
    return list;
  }();
  return readers;
}

const Reader* FindReader(std::string_view format) {
  if (format == NativeRollouts().format()) return &NativeRollouts();  // not a built-in map
  for (const Reader* reader : Readers()) {
    if (reader->format() == format) return reader;
  }
  return nullptr;
}

std::string ReadableFormats() {
  std::string out;
  std::string_view last;  // several readers of one format stand together
  for (const Reader* reader : Readers()) {
    if (reader->format() == last) continue;
    last = reader->format();
    if (!out.empty()) out += ", ";
    out += last;
  }
  return out;
}

}  // namespace plumbline::audit
