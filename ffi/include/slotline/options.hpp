// How a loader loads.
#ifndef SLOTLINE_OPTIONS_HPP
#define SLOTLINE_OPTIONS_HPP
