// slotline for C++17: data loading for training loops, header-only on top of slotline.h.
//
//     slotline::loader loader(slotline::dataset::open("digits"), slotline::options().batch_size(64).shuffle(true));
//     for (auto& batch : loader.epoch()) {
//       auto [images, labels] = batch.fields<std::uint8_t, std::int64_t>();
//     }
//
// Functions throw slotline::error, except those named try_…, which return a slotline::status. All
// handles are RAII.
#ifndef SLOTLINE_HPP
#define SLOTLINE_HPP

#include "slotline/array.hpp"
#include "slotline/batch.hpp"
#include "slotline/bulk_read.hpp"
#include "slotline/collate.hpp"
#include "slotline/compose.hpp"
#include "slotline/dataset.hpp"
#include "slotline/device.hpp"
#include "slotline/error.hpp"
#include "slotline/failure.hpp"
#include "slotline/flag.hpp"
#include "slotline/generator.hpp"
#include "slotline/half.hpp"
#include "slotline/loader.hpp"
#include "slotline/memory.hpp"
#include "slotline/options.hpp"
#include "slotline/pass.hpp"
#include "slotline/pipeline.hpp"
#include "slotline/ranks.hpp"
#include "slotline/sample.hpp"
#include "slotline/sampler.hpp"
#include "slotline/span.hpp"
#include "slotline/spawned.hpp"
#include "slotline/types.hpp"
#include "slotline/warning.hpp"

#endif
