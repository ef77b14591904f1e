"""Simulators and imagination behind one interface; importing this registers the Gymnasium ids."""

from worldplan.envs.gymnasium_ids import register

register()
